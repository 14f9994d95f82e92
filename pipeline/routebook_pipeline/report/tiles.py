"""The row of figures below the two answers."""

from collections.abc import Iterator

from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Findings, Rows
from routebook_pipeline.report.markup import Html, tag
from routebook_pipeline.report.sections.section import many


def tiles(findings: Findings) -> Iterator[Html]:
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
