"""The sections "Capacity and skew" and "Churn of topics"."""

from collections import defaultdict

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.data import ReportData, Row
from routebook_pipeline.report.markup import (
    Html,
    Section,
    chart,
    command,
    figure,
    many,
    name,
    named,
    nothing,
    table,
    words,
)


def capacity_section(findings: ReportData) -> Section:
    title = "Capacity and skew"
    rows = sorted(findings.capacity, key=lambda row: (row["cluster"], row["at_ms"]))
    if not rows:
        said = "No midnight lies in this time." if not findings.availability_by_cluster else "No queue was there."
        return Section("capacity", title, said, (nothing(said),))
    newest = {row["cluster"]: row for row in rows}
    writable = sum(row["write_capacity"] or 0 for row in newest.values())
    skewed = [row for row in newest.values() if (row["peak"] or 0) > findings.thresholds.skew_peak]
    gist = f"{formats.count(writable)} queues to write to at the end; "
    gist += f"{len(skewed)} of {len(newest)} clusters lean on one group more than twice the mean."
    return Section("capacity", title, gist, (_trend(findings, rows, newest), _skew(findings, newest)))


def _trend(findings: ReportData, rows: list[Row], newest: dict[str, Row]) -> Html:
    by_cluster: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        by_cluster[row["cluster"]].append((row["at_ms"], row["write_capacity"] or 0))
    largest = sorted(by_cluster, key=lambda one: (-(newest[one]["write_capacity"] or 0), one))
    picture = charts.line("Queues to write to, by cluster", {one: by_cluster[one] for one in largest})
    tabled = table(
        "Capacity, the newest first",
        [
            named("Cluster", "cluster"),
            figure("At", "at_ms", formats.instant),
            figure("To write to", "write_capacity"),
            figure("To read from", "read_capacity"),
            figure("Groups", "groups"),
        ],
        sorted(rows, key=lambda row: (-row["at_ms"], row["cluster"])),
        total=findings.total("capacity"),
        limit=60,
        more=command(findings, "capacity"),
    )
    left_out = len(by_cluster) - charts.LINES
    caption = "Queues to write to" + (
        f", the {charts.LINES} largest of {len(by_cluster)} clusters" if left_out > 0 else ""
    )
    return chart(caption, picture, None, tabled)


def _skew(findings: ReportData, newest: dict[str, Row]) -> Html:
    rows = sorted(newest.values(), key=lambda row: (-(row["peak"] or 0), row["cluster"]))
    return table(
        "How evenly queues are spread over the groups of a cluster, at the end, the most uneven first",
        [
            named("Cluster", "cluster"),
            figure("Groups", "groups"),
            figure("Mean a group", "mean", formats.decimal),
            figure("Fullest / mean", "peak", formats.decimal),
            figure("Variation", "cv", formats.decimal),
            figure("Gini", "gini", formats.decimal),
            words("Largest topic", lambda row: name(row["top_topic"])),
            figure("Its share", "top_share", formats.share),
        ],
        rows,
        more=command(findings, "capacity"),
    )


DRAWN = 12


def churn_section(findings: ReportData) -> Section:
    title = "Churn of topics"
    rows = sorted(
        findings.churn, key=lambda row: (-(row["created"] + row["removed"] + 2 * row["passing"]), row["cluster"])
    )
    if not rows:
        return Section("churn", title, "No topic was there.", (nothing("No topic was there in this time."),))
    created, removed = (sum(row[key] for row in rows) for key in ("created", "removed"))
    gist = f"{many(created, 'topic')} created, {formats.count(removed)} removed."
    tabled = table(
        "Topics, by cluster",
        [
            named("Cluster", "cluster"),
            figure("Before", "topics_before"),
            figure("After", "topics_after"),
            figure("Created", "created"),
            figure("Removed", "removed"),
            figure("Came and went", "passing"),
            figure("Resized", "resized"),
            figure("Rate", "rate", formats.share),
        ],
        rows,
        total=findings.total("churn"),
        more=command(findings, "churn"),
    )
    drawn = [row for row in rows if row["created"] or row["removed"] or row["passing"]][:DRAWN]
    if not drawn:
        return Section("churn", title, gist, (tabled,))
    picture = charts.bars(
        "Topics removed to the left, created to the right",
        [row["cluster"] for row in drawn],
        [
            charts.Part("created", "s0", [row["created"] for row in drawn]),
            charts.Part("came and went", "s2", [row["passing"] for row in drawn]),
            charts.Part("removed", "s1", [-row["removed"] for row in drawn]),
        ],
    )
    key = charts.legend(("s1", "removed"), ("s0", "created"), ("s2", "came and went"))
    return Section("churn", title, gist, (chart("Topics removed and created", picture, key, tabled, is_open=True),))
