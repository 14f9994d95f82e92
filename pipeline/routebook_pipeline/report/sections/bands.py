"""The ups and downs of the brokers that were away longest."""

from collections import defaultdict

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.findings import BANDS, UP, Band, Findings, seat_of, worst_seats
from routebook_pipeline.report.markup import Html
from routebook_pipeline.report.sections.section import Section, command, many, seat_name
from routebook_pipeline.report.tables import chart, figure, named, nothing, table

TABLED = 60


def section(findings: Findings) -> Section:
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


def _tables(findings: Findings) -> Html:
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


def _seats(findings: Findings) -> Html:
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
