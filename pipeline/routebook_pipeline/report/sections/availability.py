"""The sections "Objectives" and "Ups and downs": how long clusters, groups and seats were available."""

from collections import defaultdict

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.data import BANDS, UP, Band, ReportData, Row, seat_of, worst_seats
from routebook_pipeline.report.markup import (
    Html,
    Section,
    chart,
    command,
    escape,
    figure,
    many,
    name,
    named,
    nothing,
    ranked,
    seat_name,
    table,
    tag,
    words,
)

DRAWN = 12
MOST_TIMES = 4.0
"""A bar ends at so many budgets: one lost cluster must not flatten the picture of the others."""


def objective_section(findings: ReportData) -> Section:
    rows = sorted(findings.availability_by_cluster, key=lambda row: (ranked(row["availability"]), row["cluster"]))
    wanted = formats.objective(findings.thresholds.objective)
    if not rows:
        return Section(
            "objectives", "Objectives", f"Objective {wanted}.", (nothing("No cluster was heard of before the end."),)
        )
    judged = [row for row in rows if row["met"] is not None]
    met = sum(1 for row in judged if row["met"])
    gist = f"{met} of {many(len(judged), 'cluster')} {'meets' if met == 1 else 'meet'} {wanted} of time writable."
    return Section("objectives", "Objectives", gist, (_clusters(findings, rows, judged), _groups(findings)))


def _clusters(findings: ReportData, rows: list[Row], judged: list[Row]) -> Html:
    tabled = table(
        "Time writable, by cluster, the lowest first",
        [
            named("Cluster", "cluster"),
            words("Met", _met),
            figure("Availability", "availability", formats.availability),
            figure("With planned", "availability_all", formats.availability),
            figure("Groups", "groups"),
            figure("Budget", "budget_ms", formats.duration),
            figure("Spent", "spent_ms", formats.duration),
            figure("Planned", "planned_ms", formats.duration),
            figure("Unknown", "unknown_ms", formats.duration),
            words("Worst group", _worst),
        ],
        rows,
        total=findings.total("availability_by_cluster"),
        more=command(findings, "availability", "cluster"),
    )
    drawn = [row for row in judged if row["budget_ms"]][:DRAWN]
    if not drawn:
        return tabled
    spent = [row["spent_ms"] / row["budget_ms"] for row in drawn]
    picture = charts.bars(
        "Share of the error budget that is spent, by cluster",
        [row["cluster"] for row in drawn],
        [
            charts.Part("within the budget", "up", [min(1.0, one) for one in spent]),
            charts.Part("beyond it", "unplanned", [min(MOST_TIMES, max(0.0, one - 1)) for one in spent]),
        ],
        formats.share,
        limit=1.0,
    )
    key = charts.legend(
        ("up", "spent, within the budget"),
        ("unplanned", "beyond it, five budgets at most drawn"),
        ("mark", "the whole budget"),
    )
    return chart("Error budget spent", picture, key, tabled, is_open=True)


def _met(row: Row) -> Html:
    if row["met"] is None:
        return tag("span", formats.NOTHING)
    return tag("strong", "yes" if row["met"] else "no", class_="ok" if row["met"] else "bad")


def _worst(row: Row) -> Html:
    said = formats.availability(row["worst_availability"]).replace(" ", "\N{NO-BREAK SPACE}")
    return Html(name(row["worst_group"]) + escape(f", {said}" if row["worst_group"] is not None else ""))


def _groups(findings: ReportData) -> Html:
    rows = sorted(
        findings.availability_by_group,
        key=lambda row: (ranked(row["availability"]), ranked(row["readable"]), row["cluster"], row["broker"]),
    )
    if not rows:
        return nothing("No broker group was heard of before the end.")
    return table(
        "Broker groups, the lowest first",
        [
            named("Group", "cluster", "broker"),
            figure("Writable", "availability", formats.availability),
            figure("Unplanned", "unplanned_ms", formats.duration),
            figure("Planned", "planned_ms", formats.duration),
            figure("Unknown", "unknown_ms", formats.duration),
            figure("Readable", "readable", formats.availability),
            figure("Unreadable", "unreadable_ms", formats.duration),
        ],
        rows,
        total=findings.total("availability_by_group"),
        more=command(findings, "availability", "group"),
        limit=10,
    )


TABLED = 60


def band_section(findings: ReportData) -> Section:
    title = "Ups and downs"
    total = findings.total("availability_by_seat")
    worst = worst_seats(findings.availability_by_seat)
    by_seat: dict[tuple[str, str, int], list[Band]] = defaultdict(list)
    for band in findings.bands:
        by_seat[seat_of(band)].append(band)
    lanes = [
        charts.Lane(seat_name(row), by_seat[seat_of(row)], formats.availability(row["availability"]))
        for row in worst
        if seat_of(row) in by_seat
    ]
    if not lanes:
        if worst:
            return Section("bands", title, f"{many(total, 'broker')}, the longest away first.", (_seats(findings),))
        return Section("bands", title, "No broker was heard of before the end.", (nothing("Nothing to draw."),))
    gist = f"The {len(lanes)} of {many(total, 'broker')} that were away longest; short absences are drawn wider."
    if total <= BANDS:
        gist = f"All {many(total, 'broker')}, the longest away first; short absences are drawn wider."
    window = findings.window
    picture = charts.bands("When each broker was up", lanes, window.start_ms, window.end_ms)
    key = charts.legend(
        ("up", "up"), ("unplanned", "down, unplanned"), ("planned", "down, planned"), ("unknown", "nobody knows")
    )
    tabled = Html(_seats(findings) + _tables(findings))
    return Section("bands", title, gist, (chart("When each broker was up", picture, key, tabled),))


def _tables(findings: ReportData) -> Html:
    away = sorted(
        (band for band in findings.bands if band.state != UP), key=lambda one: (one.start_ms - one.end_ms, seat_of(one))
    )
    if not away:
        return nothing("None of them was ever away.")
    return table(
        "Times away, the longest first",
        [
            named("Broker", "seat"),
            named("State", "state"),
            figure("From", "start_ms", formats.instant),
            figure("To", "end_ms", formats.instant),
            figure("Lasted", "length_ms", formats.duration),
        ],
        [
            {
                "seat": f"{band.cluster}/{band.broker}/{band.broker_id}",
                "state": band.state,
                "start_ms": band.start_ms,
                "end_ms": band.end_ms,
                "length_ms": band.end_ms - band.start_ms,
            }
            for band in away[:TABLED]
        ],
        total=len(away),
        limit=TABLED,
        more=command(findings, "availability", "seat"),
    )


def _seats(findings: ReportData) -> Html:
    return table(
        "Brokers by time away",
        [
            named("Broker", "cluster", "broker", "broker_id"),
            figure("Availability", "availability", formats.availability),
            figure("With planned", "availability_all", formats.availability),
            figure("Up", "up_ms", formats.duration),
            figure("Unplanned", "unplanned_ms", formats.duration),
            figure("Planned", "planned_ms", formats.duration),
            figure("Unknown", "unknown_ms", formats.duration),
            figure("Known since", "since_ms", formats.instant),
        ],
        worst_seats(findings.availability_by_seat),
        total=findings.total("availability_by_seat"),
        more=command(findings, "availability", "seat"),
    )
