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
"""A sign for each verdict, for readers who cannot tell the colours apart."""


@dataclass(frozen=True)
class Verdict:
    word: Word
    answer: str
    reasons: tuple[str, ...]


def objective(data: ReportData) -> Verdict:
    rows = data.availability_by_cluster
    wanted = formats.objective(data.thresholds.objective)
    known = [row for row in rows if row["met"] is not None]
    missed = sorted((row for row in known if not row["met"]), key=lambda row: (row["availability"], row["cluster"]))
    if not known:
        return Verdict(Word.NOTHING, "Nothing to assess", ("The history has no master in this period.",))
    if not missed:
        spent, budget = sum(row["spent_ms"] for row in known), sum(row["budget_ms"] for row in known)
        used = f"{formats.share(spent / budget)} of the error budget is spent." if budget else ""
        clusters = "The cluster meets" if len(known) == 1 else f"All {len(known)} clusters meet"
        return Verdict(Word.YES, "Yes", tuple(filter(None, (f"{clusters} the objective of {wanted}.", used))))
    worst = missed[0]
    miss = "misses" if len(missed) == 1 else "miss"
    clusters = "The cluster misses" if len(known) == 1 else f"{len(missed)} of {len(known)} clusters {miss}"
    lowest = f"Lowest: {worst['cluster']} with {formats.availability(worst['availability'])}."
    return Verdict(Word.NO, "No", (f"{clusters} the objective of {wanted}.", lowest))


def trust(data: ReportData) -> Verdict:
    """No: changes are missing or unreadable. With care: nothing is missing, but a figure needs an explanation."""
    faults, caveats = _faults(data), _caveats(data)
    if faults:
        return Verdict(Word.NO, "Not fully", tuple(faults + caveats))
    if caveats:
        return Verdict(Word.CARE, "With care", tuple(caveats))
    entries = sum(row["entries"] for row in data.integrity)
    if entries == 1:
        return Verdict(Word.YES, "Yes", ("The only change of this period is present.",))
    return Verdict(Word.YES, "Yes", (f"All {formats.count(entries)} changes of this period are present, each once.",))


def _changes_are(number: int) -> str:
    return "1 change is" if number == 1 else f"{formats.count(number)} changes are"


def _faults(data: ReportData) -> list[str]:
    rows = data.integrity
    faults = []
    if missing := sum(row["missing"] or 0 for row in rows):
        faults.append(f"{_changes_are(missing)} missing from the history.")
    if forks := sum(row["forks"] or 0 for row in rows):
        faults.append(f"The store lost its last changes or was emptied, {_times(forks)}.")
    if unreadable := sum(sum((row["unreadable"] or {}).values()) for row in rows):
        faults.append(f"{_changes_are(unreadable)} not readable.")
    if duplicates := sum(row["duplicates"] or 0 for row in rows):
        faults.append(f"{_changes_are(duplicates)} present more than once.")
    if not faults and any(not row["ok"] for row in rows):
        faults.append("The version numbers do not add up.")
    return faults


def _caveats(data: ReportData) -> list[str]:
    caveats = []
    if data.is_partial:
        caveats.append(f"The history ends at {formats.instant(data.window.end_ms)}, before the requested end.")
    if not data.integrity:
        caveats.append("There was no change in this period: everything is as it was before.")
    if late := sum(row["late"] or 0 for row in data.integrity):
        caveats.append(f"The store's clock stepped back: {_changes_are(late)} late.")
    unknown = sum(row["unknown_ms"] or 0 for row in data.availability_by_cluster)
    known = sum((row["up_ms"] or 0) + (row["unplanned_ms"] or 0) for row in data.availability_by_cluster)
    if unknown:
        share = formats.share(unknown / (unknown + known))
        caveats.append(f"For {share} of the time it is unknown which brokers were up.")
    if paused := max((row["paused_ms"] or 0 for row in data.availability_by_cluster), default=0):
        caveats.append(f"The service itself could not receive heartbeats for {formats.duration(paused)}.")
    return caveats


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def tiles(data: ReportData) -> Iterator[Html]:
    rows = data.availability_by_cluster
    up, unplanned = _sum(rows, "up_ms"), _sum(rows, "unplanned_ms")
    ratio = up / (up + unplanned) if up + unplanned else None
    yield _tile(
        "Writable",
        formats.availability(ratio),
        f"{many(int(_sum(rows, 'groups')), 'group')} in {len(rows)} {'cluster' if len(rows) == 1 else 'clusters'}",
    )
    failures = data.failures_by_cluster
    yield _tile("Unplanned failures", formats.count(_sum(failures, "unplanned")), _time_to_repair(failures))
    longest = max((row["max_ms"] or 0 for row in data.exposure_by_cluster), default=None)
    yield _tile("Longest exposure", formats.duration(longest), "a dead address stayed in routes")
    gaps = data.heartbeat_gaps_by_cluster
    number = _sum(gaps, "number")
    late = _sum(gaps, "late") / number if number else None
    yield _tile("Late heartbeats", formats.share(late), f"of {formats.count(number)}")
    failovers = data.failovers_by_group
    yield _tile(
        "Failovers",
        formats.count(_sum(failovers, "failovers")),
        f"{formats.duration(_sum(failovers, 'headless_ms'))} without a master",
    )
    yield _tile("Anomalies", formats.count(data.total("anomalies")), "listed with the versions that show them")


def _tile(title: str, value: str, more: str) -> Html:
    return tag("li", tag("span", title, class_="title"), tag("strong", value), tag("span", more, class_="more"))


def _sum(rows: Rows, key: str) -> float:
    return sum(row[key] or 0 for row in rows)


def _time_to_repair(rows: Rows) -> str:
    """The mean over all failures that ended, in all clusters."""
    ended = [(row["unplanned"] - row["unfinished"], row["mttr_ms"]) for row in rows if row["mttr_ms"] is not None]
    total = sum(number for number, _ in ended)
    if not total:
        return "none repaired yet" if _sum(rows, "unplanned") else "none"
    return f"{formats.duration(sum(number * mean for number, mean in ended) / total)} mean time to repair"
