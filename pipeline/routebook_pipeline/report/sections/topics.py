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


def capacity_section(data: ReportData) -> Section:
    title = "Capacity and skew"
    rows = sorted(data.capacity, key=lambda row: (row["cluster"], row["at_ms"]))
    if not rows:
        message = "The period contains no midnight." if not data.availability_by_cluster else "There were no queues."
        return Section("capacity", title, message, (nothing(message),))
    newest = {row["cluster"]: row for row in rows}
    writable = sum(row["write_capacity"] or 0 for row in newest.values())
    skewed = [row for row in newest.values() if (row["peak"] or 0) > data.thresholds.skew_peak]
    limit = f"more than {data.thresholds.skew_peak:g} times the mean"
    summary = f"{formats.count(writable)} writable queues at the end; "
    summary += f"in {len(skewed)} of {many(len(newest), 'cluster')} one group has {limit}."
    return Section("capacity", title, summary, (_trend(data, rows, newest), _skew(data, newest)))


def _trend(data: ReportData, rows: list[Row], newest: dict[str, Row]) -> Html:
    by_cluster: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        by_cluster[row["cluster"]].append((row["at_ms"], row["write_capacity"] or 0))
    largest = sorted(by_cluster, key=lambda cluster: (-(newest[cluster]["write_capacity"] or 0), cluster))
    picture = charts.line("Writable queues, by cluster", {cluster: by_cluster[cluster] for cluster in largest})
    tabled = table(
        "Capacity, the newest first",
        [
            named("Cluster", "cluster"),
            figure("At", "at_ms", formats.instant),
            figure("Writable", "write_capacity"),
            figure("Readable", "read_capacity"),
            figure("Groups", "groups"),
        ],
        sorted(rows, key=lambda row: (-row["at_ms"], row["cluster"])),
        total=data.total("capacity"),
        limit=60,
        more=command(data, "capacity"),
    )
    left_out = len(by_cluster) - charts.LINES
    caption = "Writable queues" + (
        f", the {charts.LINES} largest of {len(by_cluster)} clusters" if left_out > 0 else ""
    )
    return chart(caption, picture, None, tabled)


def _skew(data: ReportData, newest: dict[str, Row]) -> Html:
    rows = sorted(newest.values(), key=lambda row: (-(row["peak"] or 0), row["cluster"]))
    return table(
        "Distribution of queues over the groups of a cluster at the end, the most uneven first",
        [
            named("Cluster", "cluster"),
            figure("Groups", "groups"),
            figure("Mean per group", "mean", formats.decimal),
            figure("Peak / mean", "peak", formats.decimal),
            figure("Variation", "cv", formats.decimal),
            figure("Gini", "gini", formats.decimal),
            words("Largest topic", lambda row: name(row["top_topic"])),
            figure("Share", "top_share", formats.share),
        ],
        rows,
        more=command(data, "capacity"),
    )


DRAWN = 12


def churn_section(data: ReportData) -> Section:
    title = "Churn of topics"
    rows = sorted(data.churn, key=lambda row: (-(row["created"] + row["removed"] + 2 * row["passing"]), row["cluster"]))
    if not rows:
        return Section("churn", title, "There were no topics.", (nothing("There were no topics in this period."),))
    created, removed = (sum(row[key] for row in rows) for key in ("created", "removed"))
    summary = f"{many(created, 'topic')} created, {formats.count(removed)} removed."
    tabled = table(
        "Topics, by cluster",
        [
            named("Cluster", "cluster"),
            figure("Before", "topics_before"),
            figure("After", "topics_after"),
            figure("Created", "created"),
            figure("Removed", "removed"),
            figure("Short-lived", "passing"),
            figure("Resized", "resized"),
            figure("Rate", "rate", formats.share),
        ],
        rows,
        total=data.total("churn"),
        more=command(data, "churn"),
    )
    drawn = [row for row in rows if row["created"] or row["removed"] or row["passing"]][:DRAWN]
    if not drawn:
        return Section("churn", title, summary, (tabled,))
    picture = charts.bars(
        "Topics by cluster: removed to the left, created to the right",
        [row["cluster"] for row in drawn],
        [
            charts.Part("created", "s0", [row["created"] for row in drawn]),
            charts.Part("short-lived", "s2", [row["passing"] for row in drawn]),
            charts.Part("removed", "s1", [-row["removed"] for row in drawn]),
        ],
    )
    key = charts.legend(("s1", "removed"), ("s0", "created"), ("s2", "short-lived"))
    return Section("churn", title, summary, (chart("Topics removed and created", picture, key, tabled, is_open=True),))
