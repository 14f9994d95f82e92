"""Every question over one window, as the plain rows that a report is made of."""

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import WAYS, Asked, Basis, Row, asking, take_rows
from routebook_pipeline.report.data import PLANNED, UNKNOWN, UNPLANNED, UP, Band, Findings, Rows, worst_seats
from routebook_pipeline.transforms import heartbeat_gaps, seat_states
from routebook_pipeline.transforms.seat_states import intervals

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
"""Field of the findings -> question and level."""


def gather(
    spark: SparkSession, basis: Basis, *, tell: Callable[[str], None] = lambda _: None, made_by: str = ""
) -> Findings:
    settled, reach = basis.settled, basis.reach
    with asking(spark, basis, QUESTIONS.values()) as asked:
        parts: dict[str, list[Row]] = {}
        for number, (name, key) in enumerate(PARTS.items(), 1):
            tell(f"computing {key[0]} by {key[1]} ({number} of {len(PARTS)})")
            parts[name] = take_rows(WAYS[key].ask(asked), WAYS[key].shape)
        tell("drawing")
        return Findings(
            namespace=basis.lake.namespace,
            window=settled.window,
            complete_until_ms=reach.complete_until_ms,
            asked_until_ms=settled.asked_until_ms,
            notes=(reach.store,) if reach.store else (),
            bands=_bands(spark, asked, worst_seats(parts["availability_by_seat"])),
            gap_buckets=_buckets(asked),
            thresholds=basis.thresholds,
            made_ms=reach.now_ms,
            made_by=made_by,
            **parts,  # type: ignore[arg-type]  # the keys of PARTS are the fields of rows
        )


def _bands(spark: SparkSession, asked: Asked, seats: Rows) -> list[Band]:
    if not seats:
        return []
    names = ("cluster", "broker", "broker_id")
    wanted = spark.createDataFrame(
        [tuple(seat[name] for name in names) for seat in seats], "cluster STRING, broker STRING, broker_id BIGINT"
    )
    changes = asked.history.changes
    of_seats = seat_states.seats(changes).select("seat_key", *names).join(F.broadcast(wanted), list(names))
    found = (
        intervals(changes, asked.window, asked.thresholds)
        .where((F.col("length_ms") > 0) & F.col("state").isin(seat_states.UP, seat_states.DOWN, seat_states.UNKNOWN))
        .join(F.broadcast(of_seats), "seat_key")
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


def _buckets(asked: Asked) -> dict[int, int]:
    inside = heartbeat_gaps.inside(asked.history, asked.window)
    summed = inside.groupBy("bucket").agg(F.sum("count").alias("number"))
    return {row.bucket: row.number for row in summed.collect() if row.bucket is not None}
