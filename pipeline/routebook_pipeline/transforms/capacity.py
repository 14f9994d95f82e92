"""8 `capacity`: how many queues can be written to and read from, and how evenly they are spread over the groups."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, DEFAULTS, Days, History, Thresholds, Window
from routebook_pipeline.schemas import CAPACITY
from routebook_pipeline.transforms.frames import of_day, select_schema
from routebook_pipeline.transforms.instants import Instants
from routebook_pipeline.transforms.losses import literal_array
from routebook_pipeline.transforms.route_table import READ, WRITE, table_at


def midnights(window: Window) -> list[int]:
    """The midnights (UTC) inside the window."""
    return list(range(-(-window.start_ms // DAY_MS) * DAY_MS, window.end_ms, DAY_MS))


def instants_of(window: Window) -> list[int]:
    """The instants at which the capacity is computed: every midnight in the window, and its end."""
    if window.length_ms == 0:
        return []
    windows = window.windows if isinstance(window, Days) else [window]
    return sorted({ms for one in windows for ms in (*midnights(one), one.end_ms - 1)})


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    times_ms = instants_of(window)
    if not isinstance(window, Days):
        return select_schema(at_times(history, times_ms, thresholds), CAPACITY)
    # The end of a day is a millisecond before a midnight. If no entry has the time of that midnight, both are equal.
    following = sorted({ms + 1 for ms in times_ms} & set(times_ms))
    changed = history.changes.where(F.col("ms").isin(following)).select("ms").distinct().collect()
    same = set(following) - {row.ms for row in changed}
    computed = [ms for ms in times_ms if ms + 1 not in same]
    both = F.array(F.col("at_ms") - 1, F.col("at_ms"))
    each = F.explode(F.when(F.col("at_ms").isin(sorted(same)), both).otherwise(F.array("at_ms")))
    found = at_times(history, computed, thresholds).withColumn("at_ms", each)
    return select_schema(of_day(found, window, "at_ms"), CAPACITY, window)


def at_times(history: History, times_ms: Sequence[int], thresholds: Thresholds = DEFAULTS) -> DataFrame:  # noqa: ARG001 the signature of all questions
    if not times_ms:
        return select_schema(
            history.changes.where(F.lit(False)).select(*[F.lit(None).alias(name) for name in CAPACITY.names]), CAPACITY
        )
    instants = Instants.of_ms(times_ms)
    loads = _loads(table_at(history, instants))
    of_cluster = W.partitionBy("at", "cluster", "kind")
    # Gini's coefficient needs the groups by rising load.
    rank = F.row_number().over(of_cluster.orderBy("is_up", "writable", "name")) - F.count_if(~F.col("is_up")).over(
        of_cluster
    )
    is_group, is_up = F.col("kind") == _GROUP, F.col("is_up") & (F.col("kind") == _GROUP)
    load = F.when(is_up, F.col("writable"))
    topic = F.when(~is_group, F.struct((-F.col("writable")).alias("less"), "name"))
    total, number = F.col("total"), F.col("groups")
    found = (
        loads.withColumn("weighted", F.when(is_up, rank * F.col("writable")))
        .groupBy("at", "cluster")
        .agg(
            F.coalesce(F.sum(F.when(is_group, F.col("writable"))), F.lit(0)).alias("write_capacity"),
            F.coalesce(F.sum(F.when(is_group, F.col("readable"))), F.lit(0)).alias("read_capacity"),
            F.count(load).alias("groups"),
            F.avg(load).alias("mean"),
            F.max(load).alias("most"),
            F.stddev_pop(load).alias("deviation"),
            F.sum("weighted").alias("weighted"),
            F.sum(load).alias("total"),
            F.min(topic).alias("top"),
        )
        .where((F.col("groups") > 0) | F.col("top").isNotNull())
        .withColumns(
            {
                "peak": F.try_divide("most", "mean"),
                "cv": F.try_divide("deviation", "mean"),
                "gini": F.try_divide(2 * F.col("weighted"), number * total) - F.try_divide(number + 1, number),
                "top_topic": F.col("top.name"),
            }
        )
    )
    has_any = F.col("write_capacity") > 0
    known = {name: F.when(has_any, F.col(name)) for name in ("mean", "peak", "cv", "gini", "top_topic")}
    top_share = F.when(has_any, F.try_divide(-F.col("top.less"), "write_capacity"))
    at_ms = F.get(literal_array(instant.ms for instant in instants.ordered), F.col("at"))
    return select_schema(found.withColumns({**known, "at_ms": at_ms, "top_share": top_share}), CAPACITY)


_GROUP: Final = "group"
_TOPIC: Final = "topic"


def _loads(table: DataFrame) -> DataFrame:
    """`at`, `cluster`, `kind`, `name`: how many queues of a group or topic could be written to (`writable`) and read
    from (`readable`). `is_up`: the group had an address.
    """
    can_write = F.array_contains(F.map_keys("addresses"), F.lit(0).cast("long"))
    can_read = F.size("addresses") > 0
    is_item = F.col("topic").isNotNull()
    kinds = F.when(is_item, F.array(F.lit(_GROUP), F.lit(_TOPIC))).when(can_read, F.array(F.lit(_GROUP)))
    return (
        table.select(
            "at",
            F.when(is_item, F.coalesce("owner", "cluster")).otherwise(F.col("owner")).alias("cluster"),
            "broker",
            "topic",
            can_read.alias("can_read"),
            _where(is_item & can_write & _has(WRITE), "write_queues").alias("writable"),
            _where(is_item & can_read & _has(READ), "read_queues").alias("readable"),
            F.explode(kinds).alias("kind"),
        )
        .groupBy(
            "at",
            "cluster",
            "kind",
            F.when(F.col("kind") == _GROUP, F.col("broker")).otherwise(F.col("topic")).alias("name"),
        )
        .agg(F.sum("writable").alias("writable"), F.sum("readable").alias("readable"), F.max("can_read").alias("is_up"))
    )


def _has(permission: int) -> Column:
    return F.col("perm").bitwiseAND(F.lit(permission)) != 0


def _where(condition: Column, value: str) -> Column:
    return F.when(F.coalesce(condition, F.lit(False)), F.col(value)).otherwise(0).cast("long")
