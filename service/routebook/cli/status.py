"""Is the service well? `routebook status` and `routebook top`: its state, once or live, with what is wrong first;
`routebook doctor`: what is wrong, and the command that fixes it.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from routebook.cli.command import DURATION, command, connection_options, given_options
from routebook.cli.contexts import chosen_connection
from routebook.cli.forms import Form, staleness, with_output
from routebook.cli.operation import flat_fields
from routebook.cli.output import (
    duration_text,
    fit_columns,
    print_fields,
    print_findings,
    print_table,
    printable,
    terminal_width,
    time_text,
)
from routebook.cli.service_client import Service, with_service
from routebook.errors import RoutebookError
from routebook.runtime import exits
from routebook.runtime.diagnosis import acl_lines, diagnose_machine, diagnose_store, judge_fleet, judge_status
from routebook.runtime.exits import ServiceUnreachableError
from routebook.settings import Loaded, load
from routebook.store.checks import Finding

if TYPE_CHECKING:
    from rich.console import RenderableType


# -- status


@command("status")
@with_output
@with_service
def status_command(service: Service, form: Form) -> int:
    """Show what is wrong, the version of the table, contact with the store, leader, workers and digest.

    Exit code 1 when something is wrong. Warnings, such as access that is open to everyone, do not count.

    \b
    routebook status
    routebook status -o jsonpath='{.warnings}'
    """
    staleness().is_reported = False
    status = service.get("/v1/status")
    findings = list(judge_status(service.url, status))
    code = exits.ANSWER_IS_NO if any(one.level == "error" for one in findings) else exits.DONE
    if not form.is_table:
        problems = [{"level": one.level, "subject": one.subject, "message": one.message} for one in findings]
        form.print_data({**status, "problems": [one for one in problems if one["level"] != "ok"]})
        return code
    for line in _problem_lines(findings):
        click.echo(printable(line))
    workers = status.pop("workers")
    state = "something is wrong" if code else "ok"
    print_fields([("service", service.url), ("state", state), *flat_fields(status)])
    if not workers:
        # They are known from the store, which cannot be reached.
        return code
    click.echo()
    rows = [_worker_row(one) for one in workers]
    print_table(*fit_columns(_WORKER_COLUMNS, rows, ("pid", "host", "http", "started"), terminal_width()))
    return code


_WORKER_COLUMNS: Final = ("worker", "lease", "version", "started", "behind", "host", "pid", "rocketmq", "http")


def _worker_row(worker: Mapping[str, Any]) -> list[object]:
    about = worker["about"]
    return [
        worker["worker"],
        "held" if worker["alive"] else "ended",
        about.get("version"),
        time_text(about.get("started_ms")),
        _lag_text(about.get("figures", {})),
        about.get("host"),
        about.get("pid"),
        about.get("remoting_port"),
        about.get("http_port"),
    ]


def _lag_text(figures: Mapping[str, Any]) -> str | None:
    if "lag_changes" not in figures:
        return None
    return f"{figures['lag_changes']} ({duration_text(figures['lag_seconds'] * 1000)})"


def _problem_lines(findings: list[Finding]) -> Iterator[str]:
    """Errors first."""
    for level, mark in (("error", "ERROR"), ("warning", "warning")):
        for one in findings:
            if one.level == level:
                yield f"{mark}: {one.subject}: {one.message}"
                if one.command:
                    yield f"  -> {one.command}"


# -- top

_COUNTERS: Final = ("lookups", "registrations", "heartbeats", "refused")
_TOP_COLUMNS: Final = (
    "worker",
    "lookups/s",
    "registr./s",
    "heartb./s",
    "refused/s",
    "sessions",
    "rocketmq",
    "http",
    "behind",
)
_OPTIONAL_TOP_COLUMNS: Final = ("http", "refused/s", "heartb./s", "rocketmq")
_LEAST_INTERVAL_S: Final = 1.0
"""Workers report their figures once a second."""


@command("top")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between two readings.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N tables; 1 in a pipe.")
@with_output
@with_service
def top_command(service: Service, interval: float, count: int | None, form: Form) -> None:
    """Show lookups, registrations, heartbeats and refusals a second, sessions, connections and lag of each worker.

    On a terminal the table is renewed until Ctrl-C. ROCKETMQ and HTTP are open connections; BEHIND is the number of
    changes that the worker has not applied yet, and their age.

    \b
    routebook top
    routebook top --interval 10s --count 6 -o json
    """
    readings = _readings(service, max(interval, _LEAST_INTERVAL_S))
    if form.is_table and terminal_width() is not None:
        _show_live(service, readings, count)
        return
    for _ in range(count or 1):
        status, rates = next(readings)
        if form.is_table:
            form.print_table(_TOP_COLUMNS, [_top_row(one) for one in rates])
        else:
            form.print_entry({"version": status["version"], "warnings": status["warnings"], "workers": rates})


def _readings(service: Service, interval_s: float) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The status and the rates of each worker since the reading before."""
    before = _figures_of(service.get("/v1/status"))
    while True:
        time.sleep(interval_s)
        status = service.get("/v1/status")
        now = _figures_of(status)
        yield status, [_rates(worker, before.get(worker, {}), figures) for worker, figures in now.items()]
        # A worker that has reported nothing new keeps its former reading, so that its next rates are right.
        before = {
            worker: before[worker] if before.get(worker, {}).get("at_ms") == figures.get("at_ms") else figures
            for worker, figures in now.items()
            if worker in before or figures
        }


def _figures_of(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By worker. A worker of an older release reports none."""
    return {one["worker"]: one["about"].get("figures", {}) for one in status["workers"] if one["alive"]}


def _rates(worker: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    seconds = (after.get("at_ms", 0) - before["at_ms"]) / 1000 if "at_ms" in before else 0.0
    rates = {
        f"{name}_per_second": round((after[name] - before[name]) / seconds, 1) if seconds > 0 else None
        for name in _COUNTERS
    }
    return {"worker": worker, **rates, **after}


def _top_row(one: Mapping[str, Any]) -> list[object]:
    return [
        one["worker"],
        *(one[f"{name}_per_second"] for name in _COUNTERS),
        one.get("sessions"),
        one.get("remoting_connections"),
        one.get("http_connections"),
        _lag_text(one),
    ]


def _show_live(
    service: Service, readings: Iterator[tuple[dict[str, Any], list[dict[str, Any]]]], count: int | None
) -> None:
    from rich.live import Live  # noqa: PLC0415 see output._plain_table
    from rich.text import Text  # noqa: PLC0415

    with Live(Text(f"Reading {service.url} …"), auto_refresh=False) as live:
        live.refresh()
        for number, (status, rates) in enumerate(readings, 1):
            live.update(_screen(service, status, rates), refresh=True)
            if number == count:
                return


def _screen(service: Service, status: dict[str, Any], rates: list[dict[str, Any]]) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415 see output._plain_table
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    counts = status["counts"]
    leader = status["leader"]["worker"] if status["leader"] else "none"
    head = [
        f"{service.url}  {time_text(int(time.time() * 1000))}",
        f"version {status['version']}  {counts['groups']} groups  {counts['brokers']} brokers  "
        f"{counts['topics']} topics",
        f"leader {leader}",
    ]
    problems = _problem_lines(list(judge_status(service.url, status)))
    rows = [_top_row(one) for one in rates]
    header, rows = fit_columns(_TOP_COLUMNS, rows, _OPTIONAL_TOP_COLUMNS, terminal_width())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        table.add_column(name.upper(), justify="left" if name == "worker" else "right", overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else printable(str(cell)) for cell in row))
    lines = [Text(printable(line)) for line in (*head, *problems)]
    return Group(*lines, Text(), table)


# -- doctor


_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@command("doctor")
@click.option("-c", "file", type=click.Path(path_type=Path), metavar="FILE", help="The service's settings file.")
@click.option("--redis-url", default=None, metavar="URL", help="The store to check.")
@click.option("--acl", is_flag=True, help="Print the ACL rule that the store's user needs, for redis-cli, and exit.")
@with_output
@connection_options
def doctor_command(*, file: Path | None, redis_url: str | None, acl: bool, form: Form) -> int:
    """Say what is wrong, how serious it is, and the command that fixes it.

    With --url or --context: check that service, its store as it sees it, its workers and its brokers. Otherwise: check
    settings, store, clock, versions and ports of this machine, and the service that runs here.

    Exit codes: 0 nothing is wrong, 1 something is, 2 the settings are wrong, 3 the service or the store cannot be
    reached.

    \b
    routebook doctor --url http://names.example:8080
    routebook doctor --redis-url redis://127.0.0.1:6379
    """
    if acl:
        for line in acl_lines(load({"redis_url": redis_url}, os.environ, file, "serve").settings):
            click.echo(line)
        return exits.DONE
    staleness().is_reported = False
    names_service = bool(given_options().get("url") or given_options().get("context_name"))
    if names_service and file is None and redis_url is None:
        findings, code = _examine_service()
    else:
        findings, code = _examine_machine(file, redis_url)
    if form.is_table:
        print_findings((*_MARKS[one.level], one.subject, one.message, _advice(one)) for one in findings)
    else:
        form.print_data([asdict(finding) for finding in findings])
    return code


def _examine_service() -> tuple[list[Finding], int]:
    connection = chosen_connection()
    findings: list[Finding] = []
    reached = 0
    # Each address on its own: with failover, one that does not answer would stay unnoticed.
    for url in connection.urls:
        with Service(url, connection.token, connection.tls_files, timeout_s=connection.timeout_s) as service:
            try:
                findings += judge_status(url, service.get("/v1/status"))
                reached += 1
                if reached == 1:
                    findings += judge_fleet(service.pages("/v1/brokers", "brokers"))
            except ServiceUnreachableError as error:
                findings.append(Finding("error", "service", error.message, error.advice, f"curl {url}/v1/status"))
            except RoutebookError as error:
                reached += 1
                findings.append(Finding("error", "service", error.message, error.advice, "routebook token list"))
    return findings, _exit_code(findings) if reached else exits.UNREACHABLE


def _examine_machine(file: Path | None, redis_url: str | None) -> tuple[list[Finding], int]:
    try:
        loaded = load({"redis_url": redis_url}, os.environ, file, "serve")
    except RoutebookError as error:
        command_line = "routebook serve -p"
        return [Finding("error", "settings", error.message, error.advice, command_line)], exits.WRONG_USAGE
    findings = [_settings_finding(loaded), *diagnose_machine(loaded.settings)]
    store_findings, is_reachable = asyncio.run(diagnose_store(loaded.settings))
    findings += [*store_findings, *_service_here()]
    return findings, _exit_code(findings) if is_reachable else exits.UNREACHABLE


def _service_here() -> Iterator[Finding]:
    """A service that does not run is no error: it may be about to be started."""
    try:
        with Service.of(chosen_connection()) as service:
            status = service.get("/v1/status")
            yield from judge_status(service.url, status)
    except ServiceUnreachableError as error:
        advice = "Start the service, or name another with --url."
        yield Finding("warning", "service", error.message, advice, "routebook up")
    except RoutebookError as error:
        yield Finding("error", "service", error.message, error.advice, "routebook token list")


def _exit_code(findings: list[Finding]) -> int:
    return exits.ANSWER_IS_NO if any(finding.level == "error" for finding in findings) else exits.DONE


def _settings_finding(loaded: Loaded) -> Finding:
    changed = sorted(name for name, origin in loaded.origins.items() if origin != "default")
    if loaded.warnings:
        advice = "Remove them, or keep them for Apache's."
        return Finding("warning", "settings", " ".join(loaded.warnings), advice, "routebook serve -p")
    return Finding("ok", "settings", f"in order; set: {', '.join(changed) or 'none, all defaults'}")


def _advice(finding: Finding) -> str:
    if finding.level == "ok":
        return ""
    return f"{finding.advice} Command: {finding.command}".strip() if finding.command else finding.advice
