"""Computes every question over one window, for the report."""

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import (
    COMPUTATIONS,
    AnswerContext,
    QuestionInput,
    Row,
    question_inputs,
    to_rows,
)
from routebook_pipeline.report.data import PLANNED, UNKNOWN, UNPLANNED, UP, Band, ReportData, Rows, worst_seats
from routebook_pipeline.transforms import heartbeat_gaps, seat_states
from routebook_pipeline.transforms.timeline import Timeline

PARTS = {
    "integrity": ("integrity", "era"),
    "availability_by_cluster": ("availability", "cluster"),
    "availability_by_group": ("availability", "group"),
    "availability_by_seat": ("availability", "seat"),
    "failures_by_cluster": ("failures", "cluster"),
    "failures_by_seat": ("failures", "seat"),
    "flaps": ("flaps", "seat"),
    "heartbeat_gaps_by_cluster": ("heartbeat-gaps", "cluster"),
    "heartbeat_gaps_by_seat": ("heartbeat-gaps", "seat"),
    "exposure_by_cluster": ("exposure", "cluster"),
    "exposure_by_group": ("exposure", "group"),
    "capacity": ("capacity", "cluster"),
    "churn": ("churn", "cluster"),
    "failovers": ("failovers", "each"),
    "failovers_by_group": ("failovers", "group"),
    "anomalies": ("anomalies", "finding"),
}
"""Field of `ReportData` -> question and level."""


def collect_report_data(
    spark: SparkSession,
    context: AnswerContext,
    *,
    report_progress: Callable[[str], None] = lambda _: None,
    made_by: str = "",
) -> ReportData:
    resolved, extent = context.resolved, context.extent
    with question_inputs(spark, context, QUESTIONS.values()) as inputs:
        parts: dict[str, list[Row]] = {}
        for number, (name, key) in enumerate(PARTS.items(), 1):
            report_progress(f"computing {key[0]} by {key[1]} ({number} of {len(PARTS)})")
            parts[name] = to_rows(COMPUTATIONS[key].compute(inputs), COMPUTATIONS[key].schema)
        report_progress("collecting the charts' data")
        return ReportData(
            namespace=context.lake.namespace,
            window=resolved.window,
            complete_until_ms=extent.complete_until_ms,
            asked_until_ms=resolved.asked_until_ms,
            notes=(extent.store_problem,) if extent.store_problem else (),
            bands=_bands(spark, inputs, worst_seats(parts["availability_by_seat"])),
            gap_buckets=_gap_buckets(inputs),
            thresholds=context.thresholds,
            made_ms=extent.now_ms,
            made_by=made_by,
            **parts,  # type: ignore[arg-type]  # the keys of PARTS are the fields of rows
        )


def _bands(spark: SparkSession, inputs: QuestionInput, seats: Rows) -> list[Band]:
    if not seats:
        return []
    names = ("cluster", "broker", "broker_id")
    wanted = spark.createDataFrame(
        [tuple(seat[name] for name in names) for seat in seats], "cluster STRING, broker STRING, broker_id BIGINT"
    )
    found = (
        Timeline.of(inputs.history, inputs.window, inputs.thresholds)
        .intervals.where(
            (F.col("length_ms") > 0) & F.col("state").isin(seat_states.UP, seat_states.DOWN, seat_states.UNKNOWN)
        )
        .join(F.broadcast(wanted), list(names))
        .select(*names, "state", "unplanned", "from_ms", "to_ms")
        .orderBy(*names, "from_ms")
    )
    return [
        Band(row.cluster, row.broker, row.broker_id, _state(row.state, row.unplanned), row.from_ms, row.to_ms)
        for row in found.collect()
    ]


def _state(state: int, unplanned: bool | None) -> str:
    if state == seat_states.DOWN:
        return UNPLANNED if unplanned else PLANNED
    return UP if state == seat_states.UP else UNKNOWN


def _gap_buckets(inputs: QuestionInput) -> dict[int, int]:
    inside = heartbeat_gaps.inside(inputs.history, inputs.window)
    summed = inside.groupBy("bucket").agg(F.sum("count").alias("number"))
    return {row.bucket: row.number for row in summed.collect() if row.bucket is not None}
