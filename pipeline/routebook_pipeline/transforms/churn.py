"""7 Which topics came and went?"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import CHURN
from routebook_pipeline.transforms.frames import one_if, select_schema
from routebook_pipeline.transforms.route_table import timeline
from routebook_pipeline.transforms.seat_states import before_end, starts_inside


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:  # noqa: ARG001 one form for all
    """A topic is there while any of the cluster's brokers has queue data of it. A cluster that had none all
    the time has no row: that it had some long ago need not be remembered for ever.
    """
    steps = timeline(before_end(history.changes, window))
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
