"""7 `churn`: topics that were created, removed and resized."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import CHURN
from routebook_pipeline.transforms.frames import before_end, one_if, select_schema, starts_inside
from routebook_pipeline.transforms.route_table import queue_changes


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:  # noqa: ARG001 the signature of all questions
    """A topic exists in a cluster while any broker of the cluster has queue data for it.

    A cluster without any topic during the window has no row, even if it had topics before.
    """
    steps = queue_changes(before_end(history.changes, window))
    is_inside = starts_inside(window, "ms")
    is_resize = (
        is_inside & F.col("is_item") & F.col("put") & F.col("was_present") & (F.col("item") != F.col("item_before"))
    )
    place = F.struct("ord", "row")
    was_before = F.col("ms") < F.lit(window.start_ms)
    of_queues = steps.groupBy("name_key", "topic").agg(
        F.max_by("cluster", place).alias("cluster"),
        F.coalesce(F.max_by("present", F.when(was_before, place)), F.lit(False)).alias("before"),
        F.max_by("present", place).alias("after"),
        F.max(is_inside & F.col("is_item") & F.col("put")).alias("put"),
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
