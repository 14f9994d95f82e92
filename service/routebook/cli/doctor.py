"""`routebook doctor`: what is wrong here, and how to put it right. Works without a running service."""

import asyncio
import os
from dataclasses import asdict
from pathlib import Path

import click

from routebook.cli.service import DEFAULT_URL, TOKEN_VARIABLE, URL_VARIABLE, print_json
from routebook.errors import RoutebookError
from routebook.runtime import exits
from routebook.runtime.diagnosis import diagnose_machine, diagnose_service, diagnose_store
from routebook.settings import Loaded, load
from routebook.store.checks import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@click.command("doctor")
@click.option("-c", "file", type=click.Path(path_type=Path), metavar="FILE", help="The service's settings file.")
@click.option("--redis-url", default=None, metavar="URL", help="The store to look at.")
@click.option("--url", default=None, help=f"The service to look at; else {URL_VARIABLE}, else {DEFAULT_URL}.")
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
def command(file: Path | None, redis_url: str | None, url: str | None, json_: bool) -> int:
    """Look at settings, store, clock, versions, ports and the running service; say how to put right what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 2 the settings are wrong, 3 the store cannot be reached.
    """
    findings, code = _examine(file, redis_url, url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
    if json_:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return code


def _examine(file: Path | None, redis_url: str | None, url: str) -> tuple[list[Finding], int]:
    try:
        loaded = load({"redis_url": redis_url}, os.environ, file, "serve")
    except RoutebookError as error:
        return [Finding("error", "settings", error.message, error.advice)], exits.WRONG_USAGE
    findings = [_settings_finding(loaded), *diagnose_machine(loaded.settings)]
    store_findings, reached = asyncio.run(diagnose_store(loaded.settings))
    findings += store_findings
    findings += diagnose_service(url, os.environ.get(TOKEN_VARIABLE, ""))
    if not reached:
        return findings, exits.UNREACHABLE
    return findings, exits.ANSWER_IS_NO if any(finding.level == "error" for finding in findings) else exits.DONE


def _settings_finding(loaded: Loaded) -> Finding:
    set_ones = sorted(name for name, origin in loaded.origins.items() if origin != "default")
    if loaded.warnings:
        return Finding("warning", "settings", " ".join(loaded.warnings), "Remove them, or leave them for Apache's.")
    return Finding("ok", "settings", f"in order; set: {', '.join(set_ones) or 'none, all defaults'}")


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        click.echo(f"{click.style(mark.ljust(7), fg=colour)}  {finding.subject.ljust(width)}  {finding.message}")
        if finding.advice and finding.level != "ok":
            click.echo(f"{'':7}  {'':{width}}  -> {finding.advice}")
