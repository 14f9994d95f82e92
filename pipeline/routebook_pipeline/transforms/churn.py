"""7 `churn`: topics that were created, removed and resized."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, DAY_NUMBER, DEFAULTS, Days, History, Thresholds, Window
from routebook_pipeline.schemas import CHURN
from routebook_pipeline.transforms.frames import one_if, select_schema, starts_inside
from routebook_pipeline.transforms.route_table import presence_changes
from routebook_pipeline.transforms.timeline import Timeline


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    """A topic exists in a cluster while any broker of the cluster has queue data for it.

    A cluster without any topic during the window has no row, even if it had topics before.
    """
    timeline = Timeline.of(history, window, thresholds)
    if isinstance(window, Days):
        return _by_day(timeline.queues, window)
    items = timeline.queues.where(F.col("topic").isNotNull())
    is_inside = starts_inside(window, "ms")
    is_resize = is_inside & F.col("put") & F.col("was_present") & (F.col("values") != F.col("before"))
    start = F.lit(window.start_ms)
    is_gone = F.col("put") & F.col("gone_ord").isNotNull()
    item = F.struct("ord", "row", F.col("put").alias("present"))
    gone = F.struct(F.col("gone_ord").alias("ord"), F.lit(0).alias("row"), F.lit(False).alias("present"))
    last = F.greatest(F.max(item), F.max(F.when(is_gone, gone)))
    last_before = F.greatest(
        F.max(F.when(F.col("ms") < start, item)), F.max(F.when(is_gone & (F.col("gone_ms") < start), gone))
    )
    of_queues = items.groupBy("broker", "topic").agg(
        F.max_by("cluster", F.struct("ord", "row")).alias("cluster"),
        F.coalesce(last_before["present"], F.lit(False)).alias("before"),
        last["present"].alias("after"),
        F.max(is_inside & F.col("put")).alias("put"),
        F.sum(one_if(is_resize)).alias("resized"),
    )
    topics = of_queues.groupBy("cluster", "topic").agg(
        F.max("before").alias("before"),
        F.max("after").alias("after"),
        F.max("put").alias("put"),
        F.sum("resized").alias("resized"),
    )
    return _with_rate(topics.groupBy("cluster").agg(*_counts()), window)


def _counts() -> list[Column]:
    """Over the topics of a cluster, with the columns `before`, `after`, `put` and `resized`."""
    before, after = F.col("before"), F.col("after")
    return [
        F.sum(one_if(before)).alias("topics_before"),
        F.sum(one_if(after)).alias("topics_after"),
        F.sum(one_if(after & ~before)).alias("created"),
        F.sum(one_if(before & ~after)).alias("removed"),
        F.sum(one_if(F.col("put") & ~before & ~after)).alias("passing"),
        F.sum("resized").alias("resized"),
    ]


def _with_rate(counted: DataFrame, window: Window) -> DataFrame:
    moved = F.col("created") + F.col("removed") + 2 * F.col("passing")
    had_any = F.col("topics_before") + F.col("topics_after") + F.col("passing") > 0
    return select_schema(
        counted.where(had_any).withColumn("rate", moved / F.greatest(F.lit(1), F.col("topics_before"))), CHURN, window
    )


def _by_day(line: DataFrame, days: Days) -> DataFrame:
    """Only topics that an entry names on a day have a row for it; the others are a running sum for each cluster.

    No broker may have been in two clusters: its topics would move with it. (`one_cluster_per_broker`)
    """
    numbers = days.numbers
    # Everything before the first day is one day more.
    day = F.greatest(F.floor(F.col("ms") / DAY_MS), F.lit(numbers.start - 1)).alias(DAY_NUMBER)
    nothing = {"step": F.lit(0), "put": F.lit(False), "resized": F.lit(0)}
    step = F.when(F.col("present"), 1).otherwise(-1)
    steps = presence_changes(line).select(
        *_TOPIC, day, step.alias("step"), nothing["put"].alias("put"), nothing["resized"].alias("resized")
    )
    is_resize = F.col("put") & F.col("was_present") & (F.col("values") != F.col("before"))
    items = line.where(F.col("topic").isNotNull()).select(
        *_TOPIC, day, nothing["step"].alias("step"), "put", one_if(is_resize).alias("resized")
    )
    so_far = W.partitionBy(*_TOPIC).orderBy(DAY_NUMBER)
    topics = (
        steps.unionByName(items)
        .groupBy(*_TOPIC, DAY_NUMBER)
        .agg(F.sum("step").alias("step"), F.max("put").alias("put"), F.sum("resized").alias("resized"))
        .withColumn("after", F.sum("step").over(so_far) > 0)
        .withColumn("before", F.lag("after", 1, False).over(so_far))
    )
    counted = topics.groupBy("cluster", DAY_NUMBER).agg(*_counts())
    in_order = W.partitionBy("cluster").orderBy(DAY_NUMBER)
    every_day = (
        counted.select("cluster")
        .distinct()
        .withColumn(DAY_NUMBER, F.explode(F.sequence(F.lit(numbers.start - 1), F.lit(numbers.stop - 1))))
    )
    dense = (
        every_day.withColumn(DAY_NUMBER, F.col(DAY_NUMBER).cast("long"))
        .join(counted, ["cluster", DAY_NUMBER], "left")
        .fillna(0)
        .withColumn("topics_after", F.sum(F.col("created") - F.col("removed")).over(in_order))
        .withColumn("topics_before", F.col("topics_after") - F.col("created") + F.col("removed"))
        .where(F.col(DAY_NUMBER) >= numbers.start)
    )
    return _with_rate(dense, days)


_TOPIC: Final = ("cluster", "topic")


def one_cluster_per_broker(history: History) -> bool:
    """Whether every queue item names a cluster, and no broker was in two. Computed once for each history."""
    key = one_cluster_per_broker.__name__
    if key not in history.derived:
        names = history.changes.where(F.col("broker").isNotNull() & F.col("cluster").isNotNull())
        clusters = names.groupBy("broker").agg(F.min("cluster").alias("one"), F.max("cluster").alias("other"))
        nameless = history.changes.where(F.col("topic").isNotNull() & F.col("cluster").isNull())
        history.derived[key] = clusters.where("one != other").isEmpty() and nameless.isEmpty()
    found: bool = history.derived[key]
    return found
