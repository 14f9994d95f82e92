"""9 `exposure`: how long routes contained the address of a dead broker."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import EXPOSURE_BY_CLUSTER, EXPOSURE_BY_GROUP
from routebook_pipeline.transforms.frames import before_end, segments, select_schema, starts_inside
from routebook_pipeline.transforms.route_table import writable_totals
from routebook_pipeline.transforms.seat_states import DOWN, evidence, intervals


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    day = F.date_format(F.timestamp_millis("ms"), "yyyy-MM-dd")
    lengths = F.sort_array(F.collect_list("detection_ms"))
    found = (
        _exposed(history, window, thresholds)
        .groupBy("cluster", day.alias("day"))
        .agg(
            F.count("*").alias("number"),
            F.sum("detection_ms").alias("detection_ms"),
            F.max("detection_ms").alias("max_ms"),
            lengths.alias("lengths"),
            F.sum("queue_seconds").alias("queue_seconds"),
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
    )


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    exposed = _exposed(history, window, thresholds)
    keys = ["cluster", "broker"]
    spans = exposed.select(*keys, F.col("since_ms").alias("from_ms"), F.col("ms").alias("to_ms"))
    covered = (
        segments(spans, keys, {"number": F.lit(1)})
        .where(F.col("number") > 0)
        .groupBy(*keys)
        .agg(F.sum(F.col("to_ms") - F.col("from_ms")).alias("exposed_ms"))
    )
    found = exposed.groupBy(*keys).agg(
        F.count("*").alias("number"),
        F.sum("detection_ms").alias("detection_ms"),
        F.sum("queue_seconds").alias("queue_seconds"),
    )
    return select_schema(found.join(covered, keys, "left").fillna(0, ["exposed_ms"]), EXPOSURE_BY_GROUP)


def detections(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """Every unplanned DOWN that began in the window and whose last sign of life is known.

    `since_ms`: the last sign of life; `ms`: the removal; `detection_ms`: the time between them.
    """
    began = (
        intervals(history.changes, window, thresholds)
        .where((F.col("state") == DOWN) & F.col("unplanned") & starts_inside(window))
        .select("ord")
    )
    since = F.when(F.col("cause") == "connection-lost", F.col("lost_ms")).otherwise(F.col("last_heartbeat_ms"))
    return (
        evidence(history.changes)
        .select("ord", "version", "ms", "cluster", "broker", "broker_id", "timeout_ms", since.alias("since_ms"))
        .join(began, "ord")
        .where(F.col("since_ms").isNotNull())
        .withColumn("detection_ms", F.col("ms") - F.col("since_ms"))
    )


def _exposed(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The detections with `queue_seconds`: how long the writable queues of a lost master could not be written to."""
    found = detections(history, window, thresholds)
    masters = found.where(F.col("broker_id") == 0).select(F.col("ord").alias("lost_at"), "broker")
    written = writable_totals(before_end(history.changes, window)).select("broker", "ord", "write_queues")
    just_before = (
        masters.join(written, "broker")
        .where(F.col("ord") < F.col("lost_at"))
        .groupBy("lost_at")
        .agg(F.max_by("write_queues", "ord").alias("queues"))
        .withColumnRenamed("lost_at", "ord")
    )
    seconds = F.col("detection_ms") / 1000 * F.coalesce("queues", F.lit(0))
    return found.join(just_before, "ord", "left").withColumn("queue_seconds", seconds)


def _nearest_rank(percent: int) -> Column:
    return F.element_at("lengths", F.floor((F.size("lengths") * percent + 99) / 100).cast("int"))
