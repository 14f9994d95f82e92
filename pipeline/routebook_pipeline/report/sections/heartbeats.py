"""Do brokers speak as often as they should?"""

import math

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import Html
from routebook_pipeline.report.sections.section import Section, command
from routebook_pipeline.report.tables import Column, chart, figure, named, nothing, table

BUCKETS = 128
STEPS_PER_DOUBLING = 8
FIRST_EDGE_MS = 100.0
MOST_COLUMNS = 64


def section(findings: Findings) -> Section:
    title, clusters = "Heartbeat gaps", sorted(findings.heartbeat_gaps_by_cluster, key=_late)
    if not clusters:
        said = "No gaps were written in this time."
        return Section("heartbeats", title, said, (nothing(f"{said} Workers write them once a minute."),))
    number, late = (sum(row[key] or 0 for row in clusters) for key in ("number", "late"))
    limit = findings.thresholds.late_factor * findings.thresholds.expected_period_ms
    gist = f"{formats.count(number)} gaps, {formats.count(late)} of them later than {formats.duration(limit)}."
    tabled = table(
        "Gaps between heartbeats, by cluster",
        [named("Cluster", "cluster"), *_figures()],
        clusters,
        total=findings.total("heartbeat_gaps_by_cluster"),
        more=command(findings, "heartbeat-gaps", "cluster"),
    )
    body = [*_histogram(findings), tabled]
    seats = sorted(findings.heartbeat_gaps_by_seat, key=_late)
    if seats:
        body.append(
            table(
                "Brokers with the most late heartbeats",
                [named("Broker", "cluster", "broker", "broker_id"), *_figures()],
                seats,
                total=findings.total("heartbeat_gaps_by_seat"),
                more=command(findings, "heartbeat-gaps", "seat"),
                limit=10,
            )
        )
    return Section("heartbeats", title, gist, tuple(body))


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
        figure("Half below", "p50_ms", formats.duration),
        figure("90 %", "p90_ms", formats.duration),
        figure("99 %", "p99_ms", formats.duration),
        figure("99.9 %", "p999_ms", formats.duration),
        figure("Longest", "max_ms", formats.duration),
        figure("Late", "late"),
        figure("Share", "late_share", formats.share),
    ]


def upper_edge_ms(bucket: int) -> float:
    return FIRST_EDGE_MS * math.exp2(bucket / STEPS_PER_DOUBLING)


def _histogram(findings: Findings) -> list[Html]:
    found = {bucket: number for bucket, number in findings.gap_buckets.items() if number}
    if not found:
        return []
    # What is below is one column: a broker that registers twice in a row is no heartbeat.
    first, last = max(min(found), max(found) - MOST_COLUMNS + 1), max(found)
    numbers = [sum(n for bucket, n in found.items() if bucket <= first)]
    numbers += [found.get(bucket, 0) for bucket in range(first + 1, last + 1)]
    names = [formats.duration(upper_edge_ms(bucket)) for bucket in range(first, last + 1)]
    limit = findings.thresholds.late_factor * findings.thresholds.expected_period_ms
    edges = [upper_edge_ms(bucket - 1) for bucket in range(first, last + 2)]
    place = next((n for n, edge in enumerate(edges) if edge >= limit), None)
    marks = [] if place is None else [(float(place), "late from here")]
    picture = charts.columns(
        "Gaps between heartbeats by their length",
        [f"≤ {one}" for one in names],
        [charts.Part("gaps", "up", numbers)],
        formats.count,
        marks=marks,
        magnitudes=True,
    )
    counted = [{"length": f"≤ {edge}", "number": number} for edge, number in zip(names, numbers, strict=True) if number]
    columns = [named("Length", "length"), figure("Gaps", "number")]
    tabled = table("Gaps by length", columns, counted, limit=MOST_COLUMNS)
    return [chart("Gaps by length, all clusters; each line is ten times the one below", picture, None, tabled)]
