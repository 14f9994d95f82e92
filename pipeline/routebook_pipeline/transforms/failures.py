"""4 `failures` and 5 `flaps`: how often seats went down, why and for how long; and which ones went down repeatedly."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.schemas import FAILURES, FLAPS
from routebook_pipeline.transforms.frames import keys_of, one_if, select_schema, starts_inside, version_of
from routebook_pipeline.transforms.seat_states import DOWN, SEAT, UP, is_hand_over
from routebook_pipeline.transforms.timeline import Timeline

_SUMMED: Final = ("unplanned", "planned", "unfinished", "repaired", "repair_ms", "up_ms")


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster", "broker", "broker_id"])


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster"])


def _summed(history: History, window: Window, thresholds: Thresholds, keys: list[str]) -> DataFrame:
    begins = (F.col("state") == DOWN) & ~is_hand_over() & starts_inside(window)
    is_repaired = begins & F.col("unplanned") & (F.coalesce(F.col("then"), F.lit(0)) == UP)
    # Grouped by cause first, so that the counts of causes and all other sums need only one pass.
    by_cause = (
        Timeline.of(history, window, thresholds)
        .intervals.groupBy(*keys_of(window), *keys, F.when(begins, F.coalesce("cause", F.lit(""))).alias("cause"))
        .agg(
            F.sum(one_if(begins)).alias("number"),
            F.sum(one_if(begins & F.col("unplanned"))).alias("unplanned"),
            F.sum(one_if(begins & ~F.col("unplanned"))).alias("planned"),
            F.sum(one_if(begins & F.col("unplanned") & ~is_repaired)).alias("unfinished"),
            F.sum(one_if(is_repaired)).alias("repaired"),
            F.sum(F.when(is_repaired, F.col("end_ms") - F.col("start_ms")).otherwise(0)).alias("repair_ms"),
            F.sum(F.when(F.col("state") == UP, F.col("length_ms")).otherwise(0)).alias("up_ms"),
        )
    )
    cause = F.when(F.col("number") > 0, F.struct("cause", "number"))
    found = by_cause.groupBy(*keys_of(window), *keys).agg(
        F.map_from_entries(F.sort_array(F.collect_list(cause))).alias("causes"),
        *[F.sum(name).alias(name) for name in _SUMMED],
    )
    absent = {name: F.lit(None).cast(FAILURES[name].dataType) for name in ("broker", "broker_id") if name not in keys}
    return select_schema(
        found.withColumns(
            {
                **absent,
                "mtbf_ms": F.try_divide("up_ms", "unplanned"),
                "mttr_ms": F.try_divide("repair_ms", "repaired"),
            }
        ),
        FAILURES,
        window,
    )


def flaps_by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    is_episode = F.col("number") >= thresholds.episode_minimum
    episode = F.when(is_episode, F.struct("first_ms", "last_ms", "number"))
    found = (
        _down_series(history, window, thresholds)
        .groupBy(*keys_of(window), "seat_key", *SEAT)
        .agg(F.sum("flaps").alias("flaps"), F.sort_array(F.collect_list(episode)).alias("episodes"))
        .where((F.col("flaps") > 0) | (F.size("episodes") > 0))
    )
    return select_schema(found, FLAPS, window)


def episodes(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The seat, `first_ms`, `last_ms`, `number`, and the `versions` of the entries that began the DOWNs."""
    return _down_series(history, window, thresholds).where(F.col("number") >= thresholds.episode_minimum)


def _down_series(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """One row for every series of DOWNs of which each begins at most `episode_gap_ms` after the one before. A hand-over
    does not count.
    """
    length = F.col("end_ms") - F.col("start_ms")
    is_flap = (F.coalesce(F.col("then"), F.lit(0)) == UP) & (length > 0) & (length < F.lit(thresholds.flap_ms))
    in_order = W.partitionBy(*keys_of(window), "seat_key").orderBy("ord")
    begins_series = F.col("start_ms") - F.lag("start_ms").over(in_order) > F.lit(thresholds.episode_gap_ms)
    return (
        Timeline.of(history, window, thresholds)
        .intervals.where((F.col("state") == DOWN) & ~is_hand_over() & starts_inside(window))
        .withColumn("begins_series", one_if(begins_series))
        .withColumn("series", F.sum("begins_series").over(in_order))
        .groupBy(*keys_of(window), "seat_key", *SEAT, "series")
        .agg(
            F.min("start_ms").alias("first_ms"),
            F.max("start_ms").alias("last_ms"),
            F.count("*").alias("number"),
            F.sum(one_if(is_flap)).alias("flaps"),
            F.sort_array(F.collect_list(version_of())).alias("versions"),
        )
    )
