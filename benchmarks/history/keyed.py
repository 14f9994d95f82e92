"""The core of two questions, with numeric keys and one order column, and with names and three order columns."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 the usual name

_VALUES = ("removed", "read_queues", "write_queues", "perm", "flags")
_NAMES = {"queue": ("topic", "cluster", "broker"), "seat": ("cluster", "broker", "broker_id")}


def route_by_keys(changes: DataFrame) -> DataFrame:
    items = changes.where(F.col("topic").isNotNull())
    return items.groupBy("queue_key").agg(*(F.max_by(name, "ord").alias(name) for name in _VALUES))


def route_by_names(changes: DataFrame) -> DataFrame:
    items = changes.where(F.col("topic").isNotNull())
    value = F.struct("era", "version", "row", *_VALUES)
    return items.groupBy(*_NAMES["queue"]).agg(F.max(value).alias("last"))


def availability_by_keys(changes: DataFrame) -> DataFrame:
    return _lengths(changes, ["seat_key"], ["ord"])


def availability_by_names(changes: DataFrame) -> DataFrame:
    return _lengths(changes, list(_NAMES["seat"]), ["era", "version", "row"])


def _lengths(changes: DataFrame, key: list[str], order: list[str]) -> DataFrame:
    seats = changes.where((F.col("row") == 0) & F.col("broker_id").isNotNull())
    evidence = seats.select(*key, *order, "ms", (F.col("code") != 12).alias("up"))
    window = Window.partitionBy(*key).orderBy(*order)
    changed = evidence.withColumn("before", F.lag("up").over(window)).where(
        F.col("before").isNull() | (F.col("before") != F.col("up"))
    )
    intervals = changed.withColumn("length", F.lead("ms").over(window) - F.col("ms"))
    return intervals.groupBy(*key).agg(F.sum(F.when(F.col("up"), F.col("length"))).alias("up_ms"))
