"""`routebook pipeline doctor`: checks the installation, the store and the lake. Does not start Spark."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from routebook_pipeline.cli.options import (
    LAKE_VARIABLE,
    checked_namespace,
    checked_url_env,
    json_option,
    lake_option,
    namespace_option,
    url_env_option,
)
from routebook_pipeline.cli.output import print_json, print_table
from routebook_pipeline.errors import NegativeAnswerError, PipelineError
from routebook_pipeline.times import iso

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"

_MARKS: Final = {OK: "ok", WARNING: "warning", ERROR: "ERROR"}
_COLOURS: Final = {"ok": "green", "warning": "yellow", "ERROR": "red"}


@dataclass(frozen=True)
class Finding:
    level: str
    subject: str
    message: str
    advice: str = ""
    code: int = 0
    """The command's exit code because of this error."""

    @classmethod
    def of(cls, subject: str, error: PipelineError) -> "Finding":
        return cls(ERROR, subject, str(error), code=error.exit_code)


@click.command("doctor", short_help="Check Java, packages, store and lake.")
@lake_option
@namespace_option
@url_env_option
@json_option
def command(lake: str | None, namespace: str, url_env: str, json_: bool) -> int:
    """Check Java, the packages, the store and the lake, and say how to fix problems.

    Exit codes: 0 no errors, 1 a package is missing, 2 an address is invalid, 3 Java, the store or the lake cannot be
    reached.
    """
    checked_namespace(namespace)
    checked_url_env(url_env)
    findings = [*_java(), *_packages()]
    # The store and the lake need the packages.
    if all(finding.level != ERROR for finding in findings):
        findings += [_store(namespace, url_env), _lake(lake, namespace)]
    if json_:
        print_json([asdict(finding) for finding in findings])
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
    yield Finding(OK, "java", f"version {java_version(home)} in {home}")


def _packages() -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "deltalake", "redis"):
        try:
            yield Finding(OK, name, version(name))
        except PackageNotFoundError:
            advice = "pip install 'routebook[pipeline]'"
            yield Finding(ERROR, name, "is not installed", advice, NegativeAnswerError.exit_code)
    try:
        yield Finding(OK, "hiredis", version("hiredis"))
    except PackageNotFoundError:
        yield Finding(WARNING, "hiredis", "is not installed: reading is four times slower", "pip install hiredis")


def _store(namespace: str, url_env: str) -> Finding:
    from routebook_pipeline.source.stream import StreamReader

    if not os.environ.get(url_env):
        advice = (
            f"Put its address into {url_env}. Without it, `ingest` cannot read, and answers cannot say whether there "
            "are later changes."
        )
        return Finding(WARNING, "store", f"{url_env} is not set", advice)
    try:
        with StreamReader(url_env, namespace) as stream:
            newest, first = stream.newest(), stream.first()
    except PipelineError as error:
        return Finding.of("store", error)
    kept = f"has changes from version {first.version}" if first is not None else "has no changes"
    return Finding(OK, "store", f"namespace {namespace!r} is at version {newest.version}; the stream {kept}")


def _lake(lake: str | None, namespace: str) -> Finding:
    from routebook_pipeline.lake.tables import Lake

    if not lake:
        return Finding(WARNING, "lake", "is not named", f"Name it with --lake or {LAKE_VARIABLE}.")
    try:
        pinned = Lake(lake, namespace).changes.pin()
    except PipelineError as error:
        return Finding.of("lake", error)
    position = pinned.position
    if position is None or pinned.observed_ms is None:
        return Finding(OK, "lake", "exists, and is empty")
    return Finding(OK, "lake", f"has changes up to version {position.version}, read until {iso(pinned.observed_ms)}")


def _print(findings: list[Finding]) -> None:
    lines = []
    for finding in findings:
        lines.append([_MARKS[finding.level], finding.subject, finding.message])
        if finding.advice:
            lines.append(["", "", f"-> {finding.advice}"])
    print_table(lines, colours=_COLOURS)
