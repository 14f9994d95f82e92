"""`routebook doctor`: what is wrong, and how to fix it. With --url or --context it checks that service from outside;
otherwise this machine, the store and the service here, none of which has to run.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from routebook.cli.command import command, connection_options, given_options
from routebook.cli.contexts import chosen_connection
from routebook.cli.forms import Form, with_output
from routebook.cli.output import print_findings
from routebook.cli.service_client import Service
from routebook.cli.staleness import staleness
from routebook.errors import RoutebookError
from routebook.runtime import exits
from routebook.runtime.diagnosis import acl_lines, diagnose_machine, diagnose_store, judge_fleet, judge_status
from routebook.runtime.exits import ServiceUnreachableError
from routebook.settings import Loaded, load
from routebook.store.checks import Finding

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
