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
"""The two that nobody meant have the warm colours."""
OTHER: Final = "c4"


def failure_section(findings: ReportData) -> Section:
    clusters = sorted(findings.failures_by_cluster, key=lambda row: (-row["unplanned"], row["cluster"]))
    unplanned, planned = (sum(row[key] for row in clusters) for key in ("unplanned", "planned"))
    gist = f"{many(unplanned, 'unplanned failure')}, {many(planned, 'planned absence')}."
    body = [_clusters(findings, clusters)]
    if clusters:
        body.append(_seats(findings))
    return Section("failures", "Failures and flaps", gist, (*body, _flaps(findings)))


def _clusters(findings: ReportData, rows: list[Row]) -> Html:
    if not rows:
        return nothing("No broker was heard of before the end.")
    tabled = table(
        "Absences that began in this time, by cluster",
        [named("Cluster", "cluster"), *_figures()],
        rows,
        total=findings.total("failures_by_cluster"),
        more=command(findings, "failures", "cluster"),
    )
    drawn = [row for row in rows if row["causes"]][:DRAWN]
    if not drawn:
        return tabled
    causes = sorted({cause for row in drawn for cause in row["causes"]}, key=_order)
    parts = [
        charts.Part(cause, CAUSES.get(cause, OTHER), [row["causes"].get(cause, 0) for row in drawn]) for cause in causes
    ]
    picture = charts.bars("Absences by cluster and cause", [row["cluster"] for row in drawn], parts)
    key = charts.legend(*((CAUSES.get(cause, OTHER), cause) for cause in causes[:8]))
    return chart("Absences by cause", picture, key, tabled, is_open=True)


def _order(cause: str) -> tuple[int, str]:
    known = list(CAUSES)
    return (known.index(cause) if cause in known else len(known), cause)


def _figures() -> list[Column]:
    return [
        figure("Unplanned", "unplanned"),
        figure("Planned", "planned"),
        figure("Still away", "unfinished"),
        figure("Up between failures", "mtbf_ms", formats.duration),
        figure("Until back", "mttr_ms", formats.duration),
        words("Causes", _causes),
    ]


def _seats(findings: ReportData) -> Html:
    rows = sorted(findings.failures_by_seat, key=lambda row: (-row["unplanned"], -row["planned"], seat_of(row)))
    rows = [row for row in rows if row["unplanned"] or row["planned"]]
    if not rows:
        return nothing("No broker went away in this time.")
    return table(
        "Brokers that failed most",
        [named("Broker", "cluster", "broker", "broker_id"), *_figures()],
        rows,
        total=findings.totals.get("failures_by_seat"),
        more=command(findings, "failures", "seat"),
        limit=10,
    )


def _causes(row: Row) -> Html:
    causes = sorted((row["causes"] or {}).items(), key=lambda one: (-one[1], one[0]))
    if not causes:
        return escape(formats.NOTHING)
    return join([Html(f"{name(cause)}&nbsp;{formats.count(number)}") for cause, number in causes[:8]], ", ")


def _flaps(findings: ReportData) -> Html:
    rows = sorted(findings.flaps, key=lambda row: (-len(row["episodes"] or ()), -row["flaps"], seat_of(row)))
    if not rows:
        return nothing("No broker flapped: none came back within a minute, none left again and again.")
    return table(
        "Brokers that came and went",
        [
            named("Broker", "cluster", "broker", "broker_id"),
            figure("Flaps", "flaps"),
            figure("Episodes", "episodes", lambda episodes: formats.count(len(episodes or ()))),
            words("The longest episode", _episode),
        ],
        rows,
        total=findings.total("flaps"),
        more=command(findings, "flaps"),
        limit=10,
    )


def _episode(row: Row) -> str:
    episodes = row["episodes"] or ()
    if not episodes:
        return formats.NOTHING
    longest = max(episodes, key=lambda one: one["number"])
    said = f"{formats.instant(longest['first_ms'])} to {formats.instant(longest['last_ms'])}"
    return f"{formats.count(longest['number'])} absences, {said}"


def failover_section(findings: ReportData) -> Section:
    title = "Failovers"
    groups = sorted(
        findings.failovers_by_group,
        key=lambda row: (-(row["headless_ms"] or 0), -row["failovers"], row["cluster"], row["broker"]),
    )
    if not groups and not findings.failovers:
        said = "No group got another master, and none was without one."
        return Section("failovers", title, said, (nothing(said),))
    number = sum(row["failovers"] for row in groups)
    planned = sum(row["planned"] for row in groups)
    headless = sum(row["headless_ms"] or 0 for row in groups)
    gist = f"{many(number, 'failover')}, {formats.count(planned)} without a gap; {formats.duration(headless)} headless."
    by_group = table(
        "Groups, the longest headless first",
        [
            named("Group", "cluster", "broker"),
            figure("Failovers", "failovers"),
            figure("Without a gap", "planned"),
            figure("Gaps in all", "gap_ms", formats.duration),
            figure("Longest", "longest_gap_ms", formats.duration),
            figure("Headless", "headless_ms", formats.duration),
        ],
        groups,
        total=findings.total("failovers_by_group"),
        more=command(findings, "failovers", "group"),
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
        sorted(findings.failovers, key=lambda row: (-(row["gap_ms"] or 0), row["ms"], row["version"])),
        total=findings.total("failovers"),
        more=command(findings, "failovers"),
        limit=10,
    )
    return Section("failovers", title, gist, (by_group, each) if findings.failovers else (by_group,))


def _gap(row: Row) -> str:
    return "none" if row["planned"] else formats.duration(row["gap_ms"])
