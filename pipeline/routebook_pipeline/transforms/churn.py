"""7 `churn`: topics that were created, removed and resized."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import CHURN
from routebook_pipeline.transforms.frames import one_if, select_schema, starts_inside
from routebook_pipeline.transforms.timeline import Timeline


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    """A topic exists in a cluster while any broker of the cluster has queue data for it.

    A cluster without any topic during the window has no row, even if it had topics before.
    """
    timeline = Timeline.of(history, window, thresholds)
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
    before, after = F.col("before"), F.col("after")
    counted = topics.groupBy("cluster").agg(
        F.sum(one_if(before)).alias("topics_before"),
        F.sum(one_if(after)).alias("topics_after"),
        F.sum(one_if(after & ~before)).alias("created"),
        F.sum(one_if(before & ~after)).alias("removed"),
        F.sum(one_if(F.col("put") & ~before & ~after)).alias("passing"),
        F.sum("resized").alias("resized"),
    )
    moved = F.col("created") + F.col("removed") + 2 * F.col("passing")
    had_any = F.col("topics_before") + F.col("topics_after") + F.col("passing") > 0
    return select_schema(
        counted.where(had_any).withColumn("rate", moved / F.greatest(F.lit(1), F.col("topics_before"))), CHURN
    )
