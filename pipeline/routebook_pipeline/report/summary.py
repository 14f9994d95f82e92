"""The top of the page: is the objective met, can the page be trusted, and the most important figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from routebook_pipeline.report import formats
from routebook_pipeline.report.data import ReportData, Rows
from routebook_pipeline.report.markup import Html, many, tag


class Word(StrEnum):
    YES = "yes"
    CARE = "care"
    NO = "no"
    NOTHING = "nothing"


MARKS: Final = {Word.YES: "✓", Word.CARE: "!", Word.NO: "✕", Word.NOTHING: "?"}
"""Shapes, since not everybody sees the colours."""


@dataclass(frozen=True)
class Verdict:
    word: Word
    answer: str
    reasons: tuple[str, ...]


def objective(findings: ReportData) -> Verdict:
    rows = findings.availability_by_cluster
    wanted = formats.objective(findings.thresholds.objective)
    judged = [row for row in rows if row["met"] is not None]
    missed = sorted((row for row in judged if not row["met"]), key=lambda row: (row["availability"], row["cluster"]))
    if not judged:
        return Verdict(
            Word.NOTHING, "Nothing to judge", ("No broker that can be written to was heard of in this time.",)
        )
    if not missed:
        spent, budget = sum(row["spent_ms"] for row in judged), sum(row["budget_ms"] for row in judged)
        used = f"{formats.share(spent / budget)} of the error budget is spent." if budget else ""
        all_of = "The cluster meets" if len(judged) == 1 else f"All {len(judged)} clusters meet"
        return Verdict(Word.YES, "Yes", tuple(filter(None, (f"{all_of} {wanted}.", used))))
    worst = missed[0]
    all_of = "The cluster misses" if len(judged) == 1 else f"{len(missed)} of {len(judged)} clusters fall short of"
    reasons = [f"{all_of} {wanted}."]
    reasons.append(f"Lowest: {worst['cluster']} with {formats.availability(worst['availability'])}.")
    return Verdict(Word.NO, "No", tuple(reasons))


def trust(findings: ReportData) -> Verdict:
    """No: something that happened is missing or cannot be read. With care: nothing is, but a figure may surprise."""
    wrong, odd = _missing(findings), _odd(findings)
    if wrong:
        return Verdict(Word.NO, "Not in full", tuple(wrong + odd))
    if odd:
        return Verdict(Word.CARE, "With care", tuple(odd))
    entries = sum(row["entries"] for row in findings.integrity)
    if entries == 1:
        return Verdict(Word.YES, "Yes", ("The one change of this time is here.",))
    return Verdict(Word.YES, "Yes", (f"All {formats.count(entries)} changes of this time are here, each once.",))


def _changes_are(number: int) -> str:
    return "1 change is" if number == 1 else f"{formats.count(number)} changes are"


def _missing(findings: ReportData) -> list[str]:
    rows = findings.integrity
    said = []
    if missing := sum(row["missing"] or 0 for row in rows):
        said.append(f"{_changes_are(missing)} missing from the history.")
    if forks := sum(row["forks"] or 0 for row in rows):
        said.append(f"The store lost its last changes or was emptied, {_times(forks)}.")
    if unreadable := sum(sum((row["unreadable"] or {}).values()) for row in rows):
        said.append(f"{_changes_are(unreadable)} not readable.")
    if duplicates := sum(row["duplicates"] or 0 for row in rows):
        said.append(f"{_changes_are(duplicates)} here more than once.")
    if not said and any(not row["ok"] for row in rows):
        said.append("The versions of the changes do not add up.")
    return said


def _odd(findings: ReportData) -> list[str]:
    said = []
    if findings.is_partial:
        said.append(f"The history reaches only to {formats.instant(findings.window.end_ms)}; asked was for more.")
    if not findings.integrity:
        said.append("No change fell into this time: everything is as it was before.")
    if late := sum(row["late"] or 0 for row in findings.integrity):
        said.append(f"The store's clock stepped back: {_changes_are(late)} late.")
    unknown = sum(row["unknown_ms"] or 0 for row in findings.availability_by_cluster)
    known = sum((row["up_ms"] or 0) + (row["unplanned_ms"] or 0) for row in findings.availability_by_cluster)
    if unknown:
        said.append(f"For {formats.share(unknown / (unknown + known))} of the time nobody knows which brokers were up.")
    if paused := max((row["paused_ms"] or 0 for row in findings.availability_by_cluster), default=0):
        said.append(f"The service itself could not receive heartbeats for {formats.duration(paused)}.")
    return said


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def tiles(findings: ReportData) -> Iterator[Html]:
    rows = findings.availability_by_cluster
    up, unplanned = _sum(rows, "up_ms"), _sum(rows, "unplanned_ms")
    ratio = up / (up + unplanned) if up + unplanned else None
    yield _tile(
        "Writable",
        formats.availability(ratio),
        f"{many(int(_sum(rows, 'groups')), 'group')} in {len(rows)} {'cluster' if len(rows) == 1 else 'clusters'}",
    )
    failures = findings.failures_by_cluster
    yield _tile("Unplanned failures", formats.count(_sum(failures, "unplanned")), _until_back(failures))
    longest = max((row["max_ms"] or 0 for row in findings.exposure_by_cluster), default=None)
    yield _tile("Longest exposure", formats.duration(longest), "a dead address was handed out")
    gaps = findings.heartbeat_gaps_by_cluster
    number = _sum(gaps, "number")
    late = _sum(gaps, "late") / number if number else None
    yield _tile("Late heartbeats", formats.share(late), f"of {formats.count(number)}")
    failovers = findings.failovers_by_group
    yield _tile(
        "Failovers",
        formats.count(_sum(failovers, "failovers")),
        f"{formats.duration(_sum(failovers, 'headless_ms'))} headless",
    )
    yield _tile("Anomalies", formats.count(findings.total("anomalies")), "see the versions that prove them")


def _tile(title: str, value: str, more: str) -> Html:
    return tag("li", tag("span", title, class_="title"), tag("strong", value), tag("span", more, class_="more"))


def _sum(rows: Rows, key: str) -> float:
    return sum(row[key] or 0 for row in rows)


def _until_back(rows: Rows) -> str:
    """The mean over all that ended, so each cluster's counts as often as it had any."""
    ended = [(row["unplanned"] - row["unfinished"], row["mttr_ms"]) for row in rows if row["mttr_ms"] is not None]
    number = sum(one for one, _ in ended)
    if not number:
        return "none came back yet" if _sum(rows, "unplanned") else "none"
    return f"{formats.duration(sum(one * mean for one, mean in ended) / number)} until back, in the mean"
