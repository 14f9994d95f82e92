"""Anomalies that are judged by the hour (of UTC): late heartbeats, and topics that come and go more than usual."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import HOUR_MS, History, Thresholds, Window
from routebook_pipeline.transforms.findings import finding, none_of, subject_of
from routebook_pipeline.transforms.heartbeat_gaps import inside, is_late
from routebook_pipeline.transforms.intervals import before_end
from routebook_pipeline.transforms.queues import timeline
from routebook_pipeline.transforms.shaping import version_of

_NORMAL: float = 1.4826
"""Times the median absolute deviation: the standard deviation, if it were a normal distribution."""


def late_heartbeats(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    hours = (
        inside(history, window)
        .groupBy("cluster", _hour("to_ms").alias("hour"))
        .agg(
            F.sum("count").alias("number"),
            F.sum(F.when(is_late(thresholds), F.col("count")).otherwise(0)).alias("late"),
        )
        .withColumn("share", F.try_divide("late", "number"))
        .where((F.col("share") > thresholds.late_share) & (F.col("number") >= thresholds.late_minimum))
    )
    return finding(
        _with_bounds(hours),
        "late-heartbeats",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("share"),
        threshold=F.lit(thresholds.late_share),
        versions=none_of(),
    )


def churn_spike(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """Hours that begin in the window, against as many before each; what lies before the first entry counts as quiet."""
    before = thresholds.churn_hours_before
    judged = range(-(-window.start_ms // HOUR_MS), -(-window.end_ms // HOUR_MS))
    moved = _moved_topics(before_end(history.changes, window))
    grid = (
        moved.select("cluster")
        .distinct()
        .withColumn(
            "hour", F.explode(F.sequence(F.lit(judged.start - before), F.lit(max(judged.stop - 1, judged.start))))
        )
        .withColumn("hour", F.col("hour").cast("long"))
    )
    earlier = W.partitionBy("cluster").orderBy("hour").rowsBetween(-before, -1)
    spread = thresholds.churn_spread * _NORMAL * F.col("mad")
    limit = F.when(F.col("mad") > 0, F.col("median") + spread).otherwise(
        thresholds.churn_times_median * F.greatest("median", F.lit(1.0))
    )
    found = (
        grid.join(moved, ["cluster", "hour"], "left")
        .withColumn("number", F.coalesce("number", F.lit(0)))
        .withColumn("usual", F.collect_list("number").over(earlier))
        .where(
            (F.col("hour") >= judged.start)
            & (F.col("hour") < judged.stop)
            & (F.col("number") >= thresholds.churn_minimum)
        )
        .withColumn("median", _median("usual"))
        .withColumn("spreads", F.transform("usual", lambda number: F.abs(number - F.col("median"))))
        .withColumn("mad", _median("spreads"))
        .withColumn("limit", limit)
        .where(F.col("number") > F.col("limit"))
    )
    return finding(
        _with_bounds(found),
        "churn-spike",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("number"),
        threshold=F.col("limit"),
        versions=F.col("versions"),
    )


def _moved_topics(changes: DataFrame) -> DataFrame:
    """`cluster`, `hour`, `number` of topics that were there at one end of the hour only, and the `versions` with which
    they came or went.
    """
    one_more = F.when(F.col("present"), 1).otherwise(-1)
    steps = (
        timeline(changes)
        .where(F.col("present") != F.col("was_present"))
        .groupBy("cluster", "topic", "ord", "ms")
        .agg(F.sum(one_more).alias("step"))
    )
    in_turn = W.partitionBy("cluster", "topic").orderBy("ord")
    hours = (
        steps.withColumn("is_there", F.sum("step").over(in_turn) > 0)
        .groupBy("cluster", "topic", _hour("ms").alias("hour"))
        .agg(F.max("ord").alias("ord"), F.max_by("is_there", "ord").alias("is_there"))
        .withColumn("was_there", F.coalesce(F.lag("is_there").over(in_turn), F.lit(False)))
    )
    return (
        hours.where(F.col("is_there") != F.col("was_there"))
        .groupBy("cluster", "hour")
        .agg(F.count("*").alias("number"), F.collect_set(version_of()).alias("versions"))
    )


def _hour(column: str) -> Column:
    return F.floor(F.col(column) / HOUR_MS)


def _with_bounds(hours: DataFrame) -> DataFrame:
    return hours.withColumns({"from_ms": F.col("hour") * HOUR_MS, "to_ms": (F.col("hour") + 1) * HOUR_MS})


def _median(column: str) -> Column:
    """Of an array; the mean of the two in the middle when their number is even."""
    number = F.size(column)
    low = F.floor((number + 1) / 2).cast("int")
    high = F.floor((number + 2) / 2).cast("int")
    ordered = F.sort_array(column)
    return F.when(number > 0, (F.element_at(ordered, low) + F.element_at(ordered, high)) / 2).otherwise(0.0)
