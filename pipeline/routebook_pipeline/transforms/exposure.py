"""9 `exposure`: how long routes contained the address of a dead broker."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import EXPOSURE_BY_CLUSTER, EXPOSURE_BY_GROUP
from routebook_pipeline.transforms.frames import keys_of, segments, select_schema, starts_inside
from routebook_pipeline.transforms.route_table import writable_totals
from routebook_pipeline.transforms.seat_states import DOWN, SEAT
from routebook_pipeline.transforms.timeline import Timeline


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    day = F.date_format(F.timestamp_millis("ms"), "yyyy-MM-dd")
    lengths = F.sort_array(F.collect_list("detection_ms"))
    found = (
        _exposed(history, window, thresholds)
        .groupBy(*keys_of(window), "cluster", day.alias("day"))
        .agg(
            F.count("*").alias("number"),
            F.sum("detection_ms").alias("detection_ms"),
            F.max("detection_ms").alias("max_ms"),
            lengths.alias("lengths"),
            (F.sum("queue_ms") / 1000).alias("queue_seconds"),
        )
    )
    return select_schema(
        found.withColumns(
            {
                "p50_ms": _nearest_rank(50),
                "p95_ms": _nearest_rank(95),
                "client_mean_ms": F.col("detection_ms") / F.col("number") + F.lit(thresholds.poll_ms / 2),
                "client_worst_ms": F.col("max_ms") + F.lit(thresholds.poll_ms),
            }
        ),
        EXPOSURE_BY_CLUSTER,
        window,
    )


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    """One sweep over the time of each group."""
    keys = [*keys_of(window), "cluster", "broker"]
    spans = _exposed(history, window, thresholds).withColumns({"from_ms": F.col("since_ms"), "to_ms": F.col("ms")})
    sums = {name: F.col(name) for name in ("detection_ms", "queue_ms")} | {"number": F.lit(1)}
    length = F.when(F.col("covering") > 0, F.col("to_ms") - F.col("from_ms")).otherwise(0)
    found = (
        segments(spans, keys, {"covering": F.lit(1)}, sums)
        .groupBy(*keys)
        .agg(F.sum(length).alias("exposed_ms"), *[F.sum(name).alias(name) for name in sums])
    )
    return select_schema(found.withColumn("queue_seconds", F.col("queue_ms") / 1000), EXPOSURE_BY_GROUP, window)


def detections(timeline: Timeline) -> DataFrame:
    """Every unplanned DOWN that began in the window and whose last sign of life is known.

    `since_ms`: the last sign of life; `ms`: the removal; `detection_ms`: the time between them.
    """
    since = F.when(F.col("cause") == "connection-lost", F.col("lost_ms")).otherwise(F.col("last_heartbeat_ms"))
    return (
        timeline.intervals.where((F.col("state") == DOWN) & F.col("unplanned") & starts_inside(timeline.window))
        .withColumnRenamed("start_ms", "ms")
        .withColumn("since_ms", since)
        .where(F.col("since_ms").isNotNull())
        .withColumn("detection_ms", F.col("ms") - F.col("since_ms"))
        .select(*keys_of(timeline.window), *SEAT, "ord", "ms", "since_ms", "detection_ms", "timeout_ms")
    )


def _exposed(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The detections with `queue_ms`: how long the writable queues of a lost master could not be written to.

    The detections are sorted among the changes of the broker's queues, so that each finds the one just before it.
    """
    timeline = Timeline.of(history, window, thresholds)
    totals = writable_totals(timeline.queues)
    both = detections(timeline).unionByName(totals.select("broker", "ord", "write_queues"), allowMissingColumns=True)
    just_before = W.partitionBy("broker").orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    queues = F.when(F.col("broker_id") == 0, F.last("write_queues", ignorenulls=True).over(just_before))
    return (
        both.withColumn("queues", queues)
        .where(F.col("detection_ms").isNotNull())
        .withColumn("queue_ms", F.col("detection_ms") * F.coalesce("queues", F.lit(0)))
    )


def _nearest_rank(percent: int) -> Column:
    return F.element_at("lengths", F.floor((F.size("lengths") * percent + 99) / 100).cast("int"))
