"""8 `capacity`: how many queues can be written to and read from, and how evenly they are spread over the groups."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import CAPACITY
from routebook_pipeline.transforms.frames import select_schema
from routebook_pipeline.transforms.instants import Instants
from routebook_pipeline.transforms.losses import validity_at
from routebook_pipeline.transforms.route_table import READ, WRITE, addresses, groups_at
from routebook_pipeline.transforms.routes import routes


def midnights(window: Window) -> list[int]:
    """The midnights (UTC) inside the window."""
    return list(range(-(-window.start_ms // DAY_MS) * DAY_MS, window.end_ms, DAY_MS))


def by_cluster(history: History, times_ms: Sequence[int], thresholds: Thresholds = DEFAULTS) -> DataFrame:  # noqa: ARG001 the signature of all questions
    if not times_ms:
        return select_schema(
            history.changes.where(F.lit(False)).select(*[F.lit(None).alias(name) for name in CAPACITY.names]), CAPACITY
        )
    instants = Instants.of_ms(times_ms)
    validity = F.broadcast(validity_at(history.changes, instants).select("at", "last_loss_ord", "baseline_begin"))
    groups = (
        groups_at(history.changes, instants)
        .join(validity, "at")
        .select("at", "broker", F.col("cluster").alias("owner"), addresses().alias("addresses"))
    )
    queues = _counted(history, instants)
    loads = (
        groups.where(F.size("addresses") > 0)
        .select("at", "broker", "owner")
        .join(queues.groupBy("at", "broker").agg(F.sum("writable").alias("load")), ["at", "broker"], "left")
        .select("at", F.col("owner").alias("cluster"), "broker", F.coalesce("load", F.lit(0)).alias("load"))
    )
    totals = queues.groupBy("at", "cluster").agg(
        F.sum("writable").alias("write_capacity"), F.sum("readable").alias("read_capacity")
    )
    found = (
        totals.join(_spread(loads), ["at", "cluster"], "full_outer")
        .join(_top(queues), ["at", "cluster"], "left")
        .fillna(0, ["write_capacity", "read_capacity", "groups"])
    )
    has_any = F.col("write_capacity") > 0
    known = {name: F.when(has_any, F.col(name)) for name in ("mean", "peak", "cv", "gini", "top_topic")}
    at_ms = F.element_at(F.array(*[F.lit(instant.ms).cast("long") for instant in instants.ordered]), F.col("at") + 1)
    return select_schema(
        found.withColumns(
            {**known, "at_ms": at_ms, "top_share": F.when(has_any, F.try_divide("top", "write_capacity"))}
        ),
        CAPACITY,
    )


def _counted(history: History, instants: Instants) -> DataFrame:
    """Every queue entry, with the number of queues that could be written to and read from."""
    can_write = F.array_contains(F.map_keys("addresses"), F.lit(0).cast("long"))
    can_read = F.size("addresses") > 0
    return routes(history.changes, instants).select(
        "at",
        "topic",
        "broker",
        "cluster",
        _where(can_write & _has(WRITE), "write_queues").alias("writable"),
        _where(can_read & _has(READ), "read_queues").alias("readable"),
    )


def _spread(loads: DataFrame) -> DataFrame:
    """Mean, peak, coefficient of variation and Gini's coefficient of the groups' loads."""
    rank = F.row_number().over(W.partitionBy("at", "cluster").orderBy("load", "broker"))
    total, number = F.col("total"), F.col("groups")
    return (
        loads.withColumn("weighted", rank * F.col("load"))
        .groupBy("at", "cluster")
        .agg(
            F.count("*").alias("groups"),
            F.avg("load").alias("mean"),
            F.max("load").alias("most"),
            F.stddev_pop("load").alias("deviation"),
            F.sum("weighted").alias("weighted"),
            F.sum("load").alias("total"),
        )
        .withColumn("peak", F.try_divide("most", "mean"))
        .withColumn("cv", F.try_divide("deviation", "mean"))
        .withColumn("gini", F.try_divide(2 * F.col("weighted"), number * total) - F.try_divide(number + 1, number))
        .drop("most", "deviation", "weighted", "total")
    )


def _top(queues: DataFrame) -> DataFrame:
    """The topic with the largest write capacity; among equals the first by name."""
    rank = F.row_number().over(W.partitionBy("at", "cluster").orderBy(F.desc("top"), "topic"))
    return (
        queues.groupBy("at", "cluster", "topic")
        .agg(F.sum("writable").alias("top"))
        .withColumn("rank", rank)
        .where(F.col("rank") == 1)
        .select("at", "cluster", F.col("topic").alias("top_topic"), "top")
    )


def _has(permission: int) -> Column:
    return F.col("perm").bitwiseAND(F.lit(permission)) != 0


def _where(condition: Column, value: str) -> Column:
    return F.when(F.coalesce(condition, F.lit(False)), F.col(value)).otherwise(0).cast("long")
