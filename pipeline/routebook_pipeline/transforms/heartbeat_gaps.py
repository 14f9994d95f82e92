"""6 `heartbeat-gaps`: the times between heartbeats. Ranks are exact; the values are as fine as the histogram's buckets.

The stream and the table with these histograms are called `pulse` and `pulses`.
"""

import math
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, HOUR_MS, Days, History, Thresholds, Window
from routebook_pipeline.schemas import HEARTBEAT_GAPS
from routebook_pipeline.transforms.frames import end_of, is_between, keys_of, of_day, select_schema, start_of

PULSE_DELAY_MS: Final = HOUR_MS
"""A worker writes its heartbeat gaps once a minute, but may be delayed."""
LAST_BUCKET: Final = 127
"""The bucket for everything above the one before. Its upper edge is the longest gap itself."""
_PER_MILLE: Final = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999}
"""Percentiles as whole numbers, so that ranks are exact: in floating point 0.9 · 10 need not be 9."""


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster", "broker", "broker_id"])


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster"])


def inside(history: History, window: Window) -> DataFrame:
    found = of_day(history.pulses.where(is_between(window, "to_ms")), window, "to_ms")
    if not isinstance(window, Days):
        return found
    # What a question about one day reads.
    return found.where((F.col("ms") >= start_of(window) - F.lit(PULSE_DELAY_MS)) & (F.col("ms") < end_of(window)))


def is_late(thresholds: Thresholds) -> Column:
    """Whether every gap in the bucket is late."""
    return F.col("bucket") >= F.lit(first_late_bucket(thresholds))


def first_late_bucket(thresholds: Thresholds) -> int:
    late_ms = thresholds.late_factor * thresholds.expected_period_ms
    return next((bucket for bucket in range(1, LAST_BUCKET + 1) if upper_edge(bucket - 1) >= late_ms), LAST_BUCKET + 1)


def upper_edge(bucket: int) -> float:
    return 100 * math.pow(2, bucket / 8)


def _summed(history: History, window: Window, thresholds: Thresholds, names: list[str]) -> DataFrame:
    keys = [*keys_of(window), *names]
    rising = W.partitionBy(*keys).orderBy("bucket")
    buckets = (
        inside(history, window)
        .groupBy(*keys, "bucket")
        .agg(F.sum("count").alias("count"), F.max("max_ms").alias("max_ms"))
        .withColumn("rank", F.sum("count").over(rising))
        .withColumn("number", F.sum("count").over(W.partitionBy(*keys)))
        .withColumn("longest", F.max("max_ms").over(W.partitionBy(*keys)))
    )
    edge = F.when(F.col("bucket") >= LAST_BUCKET, F.col("longest")).otherwise(
        F.least(100 * F.pow(F.lit(2.0), F.col("bucket") / 8), F.col("longest"))
    )
    found = buckets.groupBy(*keys).agg(
        F.first("number").alias("number"),
        F.first("longest").alias("max_ms"),
        *[F.min(F.when(F.col("rank") >= _rank(per_mille), edge)).alias(name) for name, per_mille in _PER_MILLE.items()],
        F.sum(F.when(is_late(thresholds), F.col("count")).otherwise(0)).alias("late"),
    )
    absent = {
        name: F.lit(None).cast(HEARTBEAT_GAPS[name].dataType) for name in ("broker", "broker_id") if name not in names
    }
    return select_schema(
        found.where(F.col("number") > 0).withColumns({**absent, "late_share": F.try_divide("late", "number")}),
        HEARTBEAT_GAPS,
        window,
    )


def _rank(per_mille: int) -> Column:
    """The rank of a percentile: ⌈q·n⌉."""
    return F.floor((F.col("number") * per_mille + 999) / 1000)
