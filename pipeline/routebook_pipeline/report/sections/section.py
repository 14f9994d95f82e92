"""What each part of the page is: a heading, one sentence that says it, and the body."""

from dataclasses import dataclass

from routebook_pipeline.history import DAY_MS
from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import Html


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    gist: str
    body: tuple[Html, ...]


def command(findings: Findings, question: str, by: str | None = None) -> str:
    """What prints the whole of what a table here begins."""
    window = findings.window
    level = f" --by {by}" if by else ""
    space = "" if findings.namespace == "default" else f" --namespace {findings.namespace}"
    return (
        f"routebook pipeline run {question}{level}{space} --from {_given(window.start_ms)} --to {_given(window.end_ms)}"
    )


def _given(ms: int) -> str:
    said = formats.instant(ms).replace(" ", "T") + "Z"
    return said.removesuffix("T00:00:00Z") + "T00:00Z" if ms % DAY_MS == 0 else said


def seat_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}/{row['broker_id']}"


def group_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}"


def many(number: int, one: str, more: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ranked(low: float | None) -> tuple[bool, float]:
    """For sorting by a ratio that may be null: those last."""
    return (low is None, low or 0.0)
