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
MOST_OVERSPENT = 4.0
"""Bars beyond the budget are cut at this many budgets, so that one lost cluster does not flatten the others."""


def objective_section(data: ReportData) -> Section:
    rows = sorted(data.availability_by_cluster, key=lambda row: (ranked(row["availability"]), row["cluster"]))
    wanted = formats.objective(data.thresholds.objective)
    if not rows:
        return Section(
            "objectives", "Objectives", f"Objective {wanted}.", (nothing("The history has no cluster yet."),)
        )
    known = [row for row in rows if row["met"] is not None]
    met = sum(1 for row in known if row["met"])
    meet = "was" if met == 1 else "were"
    summary = f"{met} of {many(len(known), 'cluster')} {meet} writable for at least {wanted} of the time."
    return Section("objectives", "Objectives", summary, (_clusters(data, rows, known), _groups(data)))


def _clusters(data: ReportData, rows: list[Row], known: list[Row]) -> Html:
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
        total=data.total("availability_by_cluster"),
        more=command(data, "availability", "cluster"),
    )
    drawn = [row for row in known if row["budget_ms"]][:DRAWN]
    if not drawn:
        return tabled
    spent = [row["spent_ms"] / row["budget_ms"] for row in drawn]
    picture = charts.bars(
        "Share of the error budget that was spent, by cluster",
        [row["cluster"] for row in drawn],
        [
            charts.Part("within the budget", "up", [min(1.0, share) for share in spent]),
            charts.Part(
                "beyond the budget", "unplanned", [min(MOST_OVERSPENT, max(0.0, share - 1)) for share in spent]
            ),
        ],
        formats.share,
        limit=1.0,
    )
    key = charts.legend(
        ("up", "spent, within the budget"),
        ("unplanned", "beyond the budget (drawn up to five budgets)"),
        ("mark", "the whole budget"),
    )
    return chart("Error budget spent", picture, key, tabled, is_open=True)


def _met(row: Row) -> Html:
    if row["met"] is None:
        return tag("span", formats.NOTHING)
    return tag("strong", "yes" if row["met"] else "no", class_="ok" if row["met"] else "bad")


def _worst(row: Row) -> Html:
    ratio = formats.availability(row["worst_availability"]).replace(" ", "\N{NO-BREAK SPACE}")
    return Html(name(row["worst_group"]) + escape(f", {ratio}" if row["worst_group"] is not None else ""))


def _groups(data: ReportData) -> Html:
    rows = sorted(
        data.availability_by_group,
        key=lambda row: (ranked(row["availability"]), ranked(row["readable"]), row["cluster"], row["broker"]),
    )
    if not rows:
        return nothing("The history has no broker group yet.")
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
        total=data.total("availability_by_group"),
        more=command(data, "availability", "group"),
        limit=10,
    )


TABLED = 60


def band_section(data: ReportData) -> Section:
    title = "Ups and downs"
    total = data.total("availability_by_seat")
    worst = worst_seats(data.availability_by_seat)
    by_seat: dict[tuple[str, str, int], list[Band]] = defaultdict(list)
    for band in data.bands:
        by_seat[seat_of(band)].append(band)
    lanes = [
        charts.Lane(seat_name(row), by_seat[seat_of(row)], formats.availability(row["availability"]))
        for row in worst
        if seat_of(row) in by_seat
    ]
    if not lanes:
        if worst:
            return Section("bands", title, f"{many(total, 'broker')}, most unplanned time first.", (_seats(data),))
        return Section("bands", title, "The history has no broker yet.", (nothing("Nothing to draw."),))
    summary = f"The {len(lanes)} of {many(total, 'broker')} with most unplanned time; short downtimes are drawn wider."
    if total <= BANDS:
        summary = f"All {many(total, 'broker')}, most unplanned time first; short downtimes are drawn wider."
    window = data.window
    picture = charts.bands("When each broker was up", lanes, window.start_ms, window.end_ms)
    key = charts.legend(
        ("up", "up"), ("unplanned", "down, unplanned"), ("planned", "down, planned"), ("unknown", "unknown")
    )
    tabled = Html(_seats(data) + _tables(data))
    return Section("bands", title, summary, (chart("When each broker was up", picture, key, tabled),))


def _tables(data: ReportData) -> Html:
    down = sorted(
        (band for band in data.bands if band.state != UP), key=lambda band: (band.start_ms - band.end_ms, seat_of(band))
    )
    if not down:
        return nothing("None of them was ever down.")
    return table(
        "Downtimes, the longest first",
        [
            named("Broker", "seat"),
            named("State", "state"),
            figure("From", "start_ms", formats.instant),
            figure("To", "end_ms", formats.instant),
            figure("Duration", "length_ms", formats.duration),
        ],
        [
            {
                "seat": f"{band.cluster}/{band.broker}/{band.broker_id}",
                "state": band.state,
                "start_ms": band.start_ms,
                "end_ms": band.end_ms,
                "length_ms": band.end_ms - band.start_ms,
            }
            for band in down[:TABLED]
        ],
        total=len(down),
        limit=TABLED,
        more=command(data, "availability", "seat"),
    )


def _seats(data: ReportData) -> Html:
    return table(
        "Brokers by time down",
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
        worst_seats(data.availability_by_seat),
        total=data.total("availability_by_seat"),
        more=command(data, "availability", "seat"),
    )
