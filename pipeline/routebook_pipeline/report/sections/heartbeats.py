"""The sections "Heartbeat gaps" and "Exposure": how regular heartbeats were, and how long routes had dead addresses."""

import math
from collections import defaultdict
from datetime import UTC, datetime

from routebook_pipeline.history import DAY_MS, SECOND_MS
from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.charts import duration_ticks
from routebook_pipeline.report.data import ReportData, Row
from routebook_pipeline.report.markup import Column, Html, Section, chart, command, figure, many, named, nothing, table

BUCKETS = 128
STEPS_PER_DOUBLING = 8
FIRST_EDGE_MS = 100.0
MOST_COLUMNS = 64


def heartbeat_section(data: ReportData) -> Section:
    title, clusters = "Heartbeat gaps", sorted(data.heartbeat_gaps_by_cluster, key=_late)
    if not clusters:
        message = "No heartbeat gaps were written in this period."
        return Section("heartbeats", title, message, (nothing(f"{message} Workers write them once a minute."),))
    number, late = (sum(row[key] or 0 for row in clusters) for key in ("number", "late"))
    limit = data.thresholds.late_factor * data.thresholds.expected_period_ms
    summary = f"{formats.count(number)} gaps, {formats.count(late)} of them longer than {formats.duration(limit)}."
    tabled = table(
        "Gaps between heartbeats, by cluster",
        [named("Cluster", "cluster"), *_figures()],
        clusters,
        total=data.total("heartbeat_gaps_by_cluster"),
        more=command(data, "heartbeat-gaps", "cluster"),
    )
    body = [*_histogram(data), tabled]
    seats = sorted(data.heartbeat_gaps_by_seat, key=_late)
    if seats:
        body.append(
            table(
                "Brokers with the most late heartbeats",
                [named("Broker", "cluster", "broker", "broker_id"), *_figures()],
                seats,
                total=data.total("heartbeat_gaps_by_seat"),
                more=command(data, "heartbeat-gaps", "seat"),
                limit=10,
            )
        )
    return Section("heartbeats", title, summary, tuple(body))


def _late(row: Row) -> tuple[object, ...]:
    return (
        -(row["late_share"] or 0),
        -(row["max_ms"] or 0),
        row["cluster"],
        row["broker"] or "",
        row["broker_id"] or 0,
    )


def _figures() -> list[Column]:
    return [
        figure("Gaps", "number"),
        figure("p50", "p50_ms", formats.duration),
        figure("p90", "p90_ms", formats.duration),
        figure("p99", "p99_ms", formats.duration),
        figure("p99.9", "p999_ms", formats.duration),
        figure("Longest", "max_ms", formats.duration),
        figure("Late", "late"),
        figure("Late share", "late_share", formats.share),
    ]


def upper_edge_ms(bucket: int) -> float:
    return FIRST_EDGE_MS * math.exp2(bucket / STEPS_PER_DOUBLING)


def _histogram(data: ReportData) -> list[Html]:
    found = {bucket: number for bucket, number in data.gap_buckets.items() if number}
    if not found:
        return []
    # Very short gaps share one column: they come from brokers that register twice in a row.
    first, last = max(min(found), max(found) - MOST_COLUMNS + 1), max(found)
    numbers = [sum(n for bucket, n in found.items() if bucket <= first)]
    numbers += [found.get(bucket, 0) for bucket in range(first + 1, last + 1)]
    names = [formats.duration(upper_edge_ms(bucket)) for bucket in range(first, last + 1)]
    limit = data.thresholds.late_factor * data.thresholds.expected_period_ms
    edges = [upper_edge_ms(bucket - 1) for bucket in range(first, last + 2)]
    place = next((n for n, edge in enumerate(edges) if edge >= limit), None)
    marks = [] if place is None else [(float(place), "late from here")]
    picture = charts.columns(
        "Gaps between heartbeats by length",
        [f"≤ {one}" for one in names],
        [charts.Part("gaps", "up", numbers)],
        formats.count,
        marks=marks,
        logarithmic=True,
    )
    counted = [{"length": f"≤ {edge}", "number": number} for edge, number in zip(names, numbers, strict=True) if number]
    columns = [named("Length", "length"), figure("Gaps", "number")]
    tabled = table("Gaps by length", columns, counted, limit=MOST_COLUMNS)
    return [chart("Gaps by length, all clusters (logarithmic scale)", picture, None, tabled)]


CLUSTERS_DRAWN = 5
MOST_COLUMNS_exposure = 92
MOST_DAYS = 3660
"""For longer windows (ten years) only days with failures are drawn."""


def exposure_section(data: ReportData) -> Section:
    title, rows = "Exposure", sorted(data.exposure_by_cluster, key=lambda row: (row["day"], row["cluster"]))
    rows = [row for row in rows if row["number"]]
    if not rows:
        message = "No route contained the address of a dead broker."
        return Section("exposure", title, message, (nothing(message),))
    failed, waited = (sum(row[key] or 0 for row in rows) for key in ("number", "detection_ms"))
    longest = max(row["max_ms"] or 0 for row in rows)
    summary = (
        f"{many(failed, 'dead address', 'dead addresses')} in routes for {formats.duration(waited)} in total, "
        f"for at most {formats.duration(longest)} each."
    )
    return Section("exposure", title, summary, (_days(data, rows), _groups(data)))


def _days(data: ReportData, rows: list[Row]) -> Html:
    tabled = table(
        "Time from a broker's last sign of life to its removal, by cluster and day",
        [
            named("Cluster", "cluster"),
            named("Day", "day"),
            figure("Failures", "number"),
            figure("Total", "detection_ms", formats.duration),
            figure("p50", "p50_ms", formats.duration),
            figure("p95", "p95_ms", formats.duration),
            figure("Longest", "max_ms", formats.duration),
            figure("Client, mean", "client_mean_ms", formats.duration),
            figure("Client, worst case", "client_worst_ms", formats.duration),
            figure("Queue seconds", "queue_seconds", formats.count),
        ],
        sorted(rows, key=lambda row: (-(row["detection_ms"] or 0), row["day"], row["cluster"])),
        total=data.total("exposure_by_cluster"),
        more=command(data, "exposure", "cluster"),
    )
    days = _days_of(data, rows)
    place = {day: number // _together(len(days)) for number, day in enumerate(days)}
    by_cluster: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        by_cluster[row["cluster"]][place[row["day"]]] += row["detection_ms"] or 0
    titles = [_short(day) for day in days[:: _together(len(days))]]
    columns = range(len(titles))
    most = sorted(by_cluster, key=lambda one: (-sum(by_cluster[one].values()), one))
    parts = [
        charts.Part(cluster, f"s{number}", [by_cluster[cluster][n] for n in columns])
        for number, cluster in enumerate(most[:CLUSTERS_DRAWN])
    ]
    if rest := most[CLUSTERS_DRAWN:]:
        parts.append(charts.Part("others", "s5", [sum(by_cluster[one][n] for one in rest) for n in columns]))
    picture = charts.columns(
        "Time that dead addresses were in routes, by day",
        titles,
        parts,
        formats.duration,
        steps=duration_ticks,
    )
    key = charts.legend(*((part.css, part.name) for part in parts))
    span = _together(len(days))
    each = "by day" if span == 1 else f"every {span} days"
    return chart(f"Time that dead addresses were in routes, {each}", picture, key, tabled)


def _days_of(data: ReportData, rows: list[Row]) -> list[str]:
    """All days of the window, so that days without failures are shown, too; and all other days of the rows."""
    window = data.window
    first, last = window.start_ms // DAY_MS, -(-window.end_ms // DAY_MS)
    if last - first > MOST_DAYS:
        return sorted({row["day"] for row in rows})
    quiet = {datetime.fromtimestamp(day * DAY_MS / SECOND_MS, UTC).strftime("%Y-%m-%d") for day in range(first, last)}
    return sorted(quiet | {row["day"] for row in rows})


def _together(days: int) -> int:
    """How many days share a column."""
    return max(1, -(-days // MOST_COLUMNS_exposure))


def _short(day: str) -> str:
    """`2026-11-09` as `9 Nov`; a text that is not a date is returned as it is."""
    try:
        at = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return day
    return formats.day(int(at.timestamp() * SECOND_MS))


def _groups(data: ReportData) -> Html:
    rows = sorted(data.exposure_by_group, key=lambda row: (-(row["exposed_ms"] or 0), row["cluster"], row["broker"]))
    rows = [row for row in rows if row["number"]]
    if not rows:
        return nothing("No broker group was affected.")
    return table(
        "Broker groups, the longest exposed first",
        [
            named("Group", "cluster", "broker"),
            figure("Failures", "number"),
            figure("Exposed", "exposed_ms", formats.duration),
            figure("Total of all seats", "detection_ms", formats.duration),
            figure("Queue seconds", "queue_seconds", formats.count),
        ],
        rows,
        total=data.total("exposure_by_group"),
        more=command(data, "exposure", "group"),
        limit=10,
    )
