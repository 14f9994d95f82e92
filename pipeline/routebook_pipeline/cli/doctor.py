"""`routebook pipeline doctor`: what is wrong here, and how to put it right. Starts no Spark."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from routebook_pipeline.cli.options import (
    LAKE_VARIABLE,
    NAMESPACE_VARIABLE,
    STORE_VARIABLE,
    checked_namespace,
    checked_url_env,
)
from routebook_pipeline.errors import NegativeAnswerError, PipelineError
from routebook_pipeline.times import iso

_MARKS: Final = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@dataclass(frozen=True)
class Finding:
    level: str
    """ok, warning, error."""
    subject: str
    message: str
    advice: str = ""
    code: int = 0
    """What the command ends with, for an error."""

    @classmethod
    def of(cls, subject: str, error: PipelineError) -> "Finding":
        return cls("error", subject, str(error), code=error.exit_code)


@click.command("doctor")
@click.option("--lake", envvar=LAKE_VARIABLE, show_envvar=True, metavar="FOLDER|URL")
@click.option("--namespace", envvar=NAMESPACE_VARIABLE, default="default", show_default=True, metavar="NAME")
@click.option(
    "--url-env", default=STORE_VARIABLE, show_default=True, metavar="VARIABLE", help="Has the store's address."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
def command(lake: str | None, namespace: str, url_env: str, json_: bool) -> int:
    """Look at Java, packages, store and lake; say how to put right what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 2 an address is none, 3 Java, store or lake cannot be reached.
    """
    checked_namespace(namespace)
    checked_url_env(url_env)
    findings = [*_java(), *_packages()]
    # Not before the packages are known to be there.
    if all(finding.level != "error" for finding in findings):
        findings += [_store(namespace, url_env), _lake(lake, namespace)]
    if json_:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return max(finding.code for finding in findings)


def _java() -> Iterator[Finding]:
    from routebook_pipeline.java import find_java_home, java_version

    try:
        home = find_java_home()
    except PipelineError as error:
        yield Finding.of("java", error)
        return
    yield Finding("ok", "java", f"version {java_version(home)} in {home}")


def _packages() -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "deltalake", "redis"):
        try:
            yield Finding("ok", name, version(name))
        except PackageNotFoundError:
            advice = "pip install 'routebook[pipeline]'"
            yield Finding("error", name, "is not installed", advice, NegativeAnswerError.exit_code)
    try:
        yield Finding("ok", "hiredis", version("hiredis"))
    except PackageNotFoundError:
        yield Finding("warning", "hiredis", "is not installed: reading is four times slower", "pip install hiredis")


def _store(namespace: str, url_env: str) -> Finding:
    from routebook_pipeline.source.stream import StreamReader

    if not os.environ.get(url_env):
        advice = f"Put its address into {url_env}; without, `ingest` cannot read, and nobody knows of later changes."
        return Finding("warning", "store", f"{url_env} is not set", advice)
    try:
        with StreamReader(url_env, namespace) as stream:
            newest, first = stream.newest(), stream.first()
    except PipelineError as error:
        return Finding.of("store", error)
    kept = f"keeps changes from version {first.version}" if first is not None else "keeps no changes"
    return Finding("ok", "store", f"namespace {namespace!r} is at version {newest.version}; {kept}")


def _lake(lake: str | None, namespace: str) -> Finding:
    from routebook_pipeline.lake.tables import Lake

    if not lake:
        return Finding("warning", "lake", "is not named", f"Name it with --lake or {LAKE_VARIABLE}.")
    try:
        pinned = Lake(lake, namespace).changes.pin()
    except PipelineError as error:
        return Finding.of("lake", error)
    place = pinned.position
    if place is None or pinned.observed_ms is None:
        return Finding("ok", "lake", "is there, and empty")
    return Finding("ok", "lake", f"holds changes to version {place.version}, read until {iso(pinned.observed_ms)}")


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        click.echo(f"{click.style(mark.ljust(7), fg=colour)}  {finding.subject.ljust(width)}  {finding.message}")
        if finding.advice and finding.level != "ok":
            click.echo(f"{'':7}  {'':{width}}  -> {finding.advice}")
