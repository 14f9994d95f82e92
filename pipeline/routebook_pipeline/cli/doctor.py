"""`routebook pipeline doctor`: what is wrong here, and how to put it right. Starts no Spark."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from routebook_pipeline.errors import AnswerIsNoError, PipelineError, UnreachableError

_MARKS: Final = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "red")}


@dataclass(frozen=True)
class Finding:
    level: str
    """ok, warning, error."""
    subject: str
    message: str
    advice: str = ""


@click.command("doctor")
@click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")
def command(json_: bool) -> int:
    """Look at Java and Spark; say how to put right what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 3 Java cannot be found.
    """
    findings = [*_java(), *_packages()]
    if json_:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    if any(finding.level == "error" and finding.subject == "java" for finding in findings):
        return UnreachableError.exit_code
    return AnswerIsNoError.exit_code if any(finding.level == "error" for finding in findings) else 0


def _java() -> Iterator[Finding]:
    from routebook_pipeline.java import find_java_home, java_version  # noqa: PLC0415

    try:
        home = find_java_home()
    except PipelineError as error:
        yield Finding("error", "java", str(error))
        return
    yield Finding("ok", "java", f"version {java_version(home)} in {home}")


def _packages() -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "deltalake", "redis"):
        try:
            yield Finding("ok", name, version(name))
        except PackageNotFoundError:
            yield Finding("error", name, "is not installed", "pip install 'routebook[pipeline]'")
    try:
        yield Finding("ok", "hiredis", version("hiredis"))
    except PackageNotFoundError:
        yield Finding("warning", "hiredis", "is not installed: reading is four times slower", "pip install hiredis")


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        click.echo(f"{click.style(mark.ljust(7), fg=colour)}  {finding.subject.ljust(width)}  {finding.message}")
        if finding.advice and finding.level != "ok":
            click.echo(f"{'':7}  {'':{width}}  -> {finding.advice}")
