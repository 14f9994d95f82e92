"""`routebook doctor`: what is wrong here, and how to fix it. Works without a running service."""

import asyncio
import os
from dataclasses import asdict
from pathlib import Path

import click

from routebook.cli.output import print_findings
from routebook.cli.service_client import (
    DEFAULT_URL,
    URL_VARIABLE,
    TlsFiles,
    print_json,
    token_of_environment,
    with_tls_files,
)
from routebook.errors import RoutebookError
from routebook.runtime import exits
from routebook.runtime.diagnosis import acl_lines, diagnose_machine, diagnose_service, diagnose_store
from routebook.settings import Loaded, load
from routebook.store.checks import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@click.command("doctor")
@click.option("-c", "file", type=click.Path(path_type=Path), metavar="FILE", help="The service's settings file.")
@click.option("--redis-url", default=None, metavar="URL", help="The store to check.")
@click.option("--url", default=None, help=f"The service to check; else {URL_VARIABLE}, else {DEFAULT_URL}.")
@with_tls_files
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
@click.option("--acl", is_flag=True, help="Print the ACL rule that the store's user needs, for redis-cli, and exit.")
def doctor_command(
    *, file: Path | None, redis_url: str | None, url: str | None, tls_files: TlsFiles, json_: bool, acl: bool
) -> int:
    """Check settings, store, clock, versions, ports and the running service; say how to fix what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 2 the settings are wrong, 3 the store cannot be reached.
    """
    if acl:
        for line in acl_lines(load({"redis_url": redis_url}, os.environ, file, "serve").settings):
            click.echo(line)
        return exits.DONE
    findings, code = _examine(file, redis_url, url or os.environ.get(URL_VARIABLE) or DEFAULT_URL, tls_files)
    if json_:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return code


def _examine(file: Path | None, redis_url: str | None, url: str, tls_files: TlsFiles) -> tuple[list[Finding], int]:
    try:
        loaded = load({"redis_url": redis_url}, os.environ, file, "serve")
    except RoutebookError as error:
        return [Finding("error", "settings", error.message, error.advice)], exits.WRONG_USAGE
    findings = [_settings_finding(loaded), *diagnose_machine(loaded.settings)]
    store_findings, is_reachable = asyncio.run(diagnose_store(loaded.settings))
    findings += store_findings
    try:
        findings += diagnose_service(url, token_of_environment(), tls_files.context(url))
    except RoutebookError as error:
        findings.append(Finding("error", "service", error.message, error.advice))
    if not is_reachable:
        return findings, exits.UNREACHABLE
    return findings, exits.ANSWER_IS_NO if any(finding.level == "error" for finding in findings) else exits.DONE


def _settings_finding(loaded: Loaded) -> Finding:
    changed = sorted(name for name, origin in loaded.origins.items() if origin != "default")
    if loaded.warnings:
        return Finding("warning", "settings", " ".join(loaded.warnings), "Remove them, or keep them for Apache's.")
    return Finding("ok", "settings", f"in order; set: {', '.join(changed) or 'none, all defaults'}")


def _print(findings: list[Finding]) -> None:
    print_findings(
        (*_MARKS[finding.level], finding.subject, finding.message, finding.advice if finding.level != "ok" else "")
        for finding in findings
    )
