"""10 `failovers`: when another address became the master of a group."""

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import FAILOVERS, FAILOVERS_BY_GROUP
from routebook_pipeline.transforms.availability import masterless
from routebook_pipeline.transforms.frames import before_end, one_if, select_schema, starts_inside
from routebook_pipeline.transforms.seat_states import UP, evidence, is_up, seats, state_changes


def each(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:  # noqa: ARG001 the signature of all questions
    return select_schema(_found(history, window), FAILOVERS)


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    found = (
        _found(history, window)
        .groupBy("group_key")
        .agg(
            F.count("*").alias("failovers"),
            F.sum(one_if(F.col("planned"))).alias("planned"),
            F.sum("gap_ms").alias("gap_ms"),
            F.max("gap_ms").alias("longest_gap_ms"),
        )
    )
    headless = (
        masterless(history, window, thresholds)
        .groupBy("group_key")
        .agg(F.sum(F.col("to_ms") - F.col("from_ms")).alias("headless_ms"))
    )
    names = seats(before_end(history.changes, window)).select("group_key", "cluster", "broker").distinct()
    both = found.join(headless, "group_key", "full_outer").fillna(0).join(names, "group_key")
    return select_schema(both, FAILOVERS_BY_GROUP)


def _found(history: History, window: Window) -> DataFrame:
    changes = before_end(history.changes, window)
    in_order = W.partitionBy("seat_key").orderBy("ord")
    until_now = in_order.rowsBetween(W.unboundedPreceding, -1)
    masters = evidence(changes).where((F.col("broker_id") == 0) & is_up())
    registered = (
        masters.select(
            "group_key", "seat_key", "ord", "version", "ms", "cluster", "broker", F.col("addr").alias("to_address")
        )
        .withColumn("from_address", F.lag("to_address").over(in_order))
        .where((F.col("from_address") != F.col("to_address")) & starts_inside(window, "ms"))
    )
    # If the registration does not change the seat's state, it took over from a seat that was UP, without a gap.
    ends_up = F.col("before") == UP
    gaps = (
        state_changes(changes)
        .withColumn("left_ms", F.last(F.when(ends_up, F.col("ms")), ignorenulls=True).over(until_now))
        .where(F.col("state") == UP)
        .select("ord", (F.col("ms") - F.col("left_ms")).alias("gap_ms"))
    )
    return (
        registered.join(gaps, "ord", "left")
        .withColumn("gap_ms", F.coalesce("gap_ms", F.lit(0)))
        .withColumn("planned", F.col("gap_ms") == 0)
    )
