"""The sections "Failures and flaps" and "Failovers"."""

from typing import Final

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.data import ReportData, Row, seat_of
from routebook_pipeline.report.markup import (
    Column,
    Html,
    Section,
    chart,
    command,
    escape,
    figure,
    join,
    many,
    name,
    named,
    nothing,
    table,
    words,
)

DRAWN = 12
CAUSES: Final = {
    "expired": "c0",
    "connection-lost": "c1",
    "unregistered": "c2",
    "operator": "c3",
    "replaced": "c4",
    "moved": "c4",
    "turned-down": "c4",
}
"""Cause -> colour; the unplanned causes have the warm colours."""
OTHER: Final = "c4"


def failure_section(data: ReportData) -> Section:
    clusters = sorted(data.failures_by_cluster, key=lambda row: (-row["unplanned"], row["cluster"]))
    unplanned, planned = (sum(row[key] for row in clusters) for key in ("unplanned", "planned"))
    summary = f"{many(unplanned, 'unplanned failure')}, {many(planned, 'planned downtime')}."
    body = [_clusters(data, clusters)]
    if clusters:
        body.append(_seats(data))
    return Section("failures", "Failures and flaps", summary, (*body, _flaps(data)))


def _clusters(data: ReportData, rows: list[Row]) -> Html:
    if not rows:
        return nothing("The history has no broker yet.")
    tabled = table(
        "Downtimes that began in this period, by cluster",
        [named("Cluster", "cluster"), *_figures()],
        rows,
        total=data.total("failures_by_cluster"),
        more=command(data, "failures", "cluster"),
    )
    drawn = [row for row in rows if row["causes"]][:DRAWN]
    if not drawn:
        return tabled
    causes = sorted({cause for row in drawn for cause in row["causes"]}, key=_order)
    parts = [
        charts.Part(cause, CAUSES.get(cause, OTHER), [row["causes"].get(cause, 0) for row in drawn]) for cause in causes
    ]
    picture = charts.bars("Downtimes by cluster and cause", [row["cluster"] for row in drawn], parts)
    key = charts.legend(*((CAUSES.get(cause, OTHER), cause) for cause in causes[:8]))
    return chart("Downtimes by cause", picture, key, tabled, is_open=True)


def _order(cause: str) -> tuple[int, str]:
    known = list(CAUSES)
    return (known.index(cause) if cause in known else len(known), cause)


def _figures() -> list[Column]:
    return [
        figure("Unplanned", "unplanned"),
        figure("Planned", "planned"),
        figure("Still down", "unfinished"),
        figure("MTBF", "mtbf_ms", formats.duration),
        figure("MTTR", "mttr_ms", formats.duration),
        words("Causes", _causes),
    ]


def _seats(data: ReportData) -> Html:
    rows = sorted(data.failures_by_seat, key=lambda row: (-row["unplanned"], -row["planned"], seat_of(row)))
    rows = [row for row in rows if row["unplanned"] or row["planned"]]
    if not rows:
        return nothing("No broker went down in this period.")
    return table(
        "Brokers that failed most",
        [named("Broker", "cluster", "broker", "broker_id"), *_figures()],
        rows,
        total=data.totals.get("failures_by_seat"),
        more=command(data, "failures", "seat"),
        limit=10,
    )


def _causes(row: Row) -> Html:
    causes = sorted((row["causes"] or {}).items(), key=lambda item: (-item[1], item[0]))
    if not causes:
        return escape(formats.NOTHING)
    return join([Html(f"{name(cause)}&nbsp;{formats.count(number)}") for cause, number in causes[:8]], ", ")


def _flaps(data: ReportData) -> Html:
    rows = sorted(data.flaps, key=lambda row: (-len(row["episodes"] or ()), -row["flaps"], seat_of(row)))
    if not rows:
        return nothing("No broker flapped.")
    return table(
        "Brokers with short or repeated downtimes",
        [
            named("Broker", "cluster", "broker", "broker_id"),
            figure("Flaps", "flaps"),
            figure("Episodes", "episodes", lambda episodes: formats.count(len(episodes or ()))),
            words("The longest episode", _episode),
        ],
        rows,
        total=data.total("flaps"),
        more=command(data, "flaps"),
        limit=10,
    )


def _episode(row: Row) -> str:
    episodes = row["episodes"] or ()
    if not episodes:
        return formats.NOTHING
    longest = max(episodes, key=lambda episode: episode["number"])
    time = f"{formats.instant(longest['first_ms'])} to {formats.instant(longest['last_ms'])}"
    return f"{formats.count(longest['number'])} downtimes, {time}"


def failover_section(data: ReportData) -> Section:
    title = "Failovers"
    groups = sorted(
        data.failovers_by_group,
        key=lambda row: (-(row["headless_ms"] or 0), -row["failovers"], row["cluster"], row["broker"]),
    )
    if not groups and not data.failovers:
        message = "No group changed its master, and none was without a master."
        return Section("failovers", title, message, (nothing(message),))
    number = sum(row["failovers"] for row in groups)
    planned = sum(row["planned"] for row in groups)
    headless = sum(row["headless_ms"] or 0 for row in groups)
    summary = (
        f"{many(number, 'failover')}, {formats.count(planned)} without a gap; {formats.duration(headless)} headless."
    )
    by_group = table(
        "Groups, the longest headless first",
        [
            named("Group", "cluster", "broker"),
            figure("Failovers", "failovers"),
            figure("Without a gap", "planned"),
            figure("Total gap", "gap_ms", formats.duration),
            figure("Longest gap", "longest_gap_ms", formats.duration),
            figure("Headless", "headless_ms", formats.duration),
        ],
        groups,
        total=data.total("failovers_by_group"),
        more=command(data, "failovers", "group"),
        limit=10,
    )
    each = table(
        "Failovers, the longest gap first",
        [
            named("Group", "cluster", "broker"),
            figure("At", "ms", formats.instant),
            figure("Version", "version", str),
            words("From", lambda row: name(row["from_address"])),
            words("To", lambda row: name(row["to_address"])),
            words("Gap", _gap),
        ],
        sorted(data.failovers, key=lambda row: (-(row["gap_ms"] or 0), row["ms"], row["version"])),
        total=data.total("failovers"),
        more=command(data, "failovers"),
        limit=10,
    )
    return Section("failovers", title, summary, (by_group, each) if data.failovers else (by_group,))


def _gap(row: Row) -> str:
    return "none" if row["planned"] else formats.duration(row["gap_ms"])
