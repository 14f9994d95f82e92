"""4 How often did seats go down, why, and for how long?"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.shapes import FAILURES
from routebook_pipeline.transforms.intervals import before_end, intervals, starts_inside
from routebook_pipeline.transforms.shaping import flag, shaped
from routebook_pipeline.transforms.states import DOWN, UP, seats

_SUMMED: Final = ("unplanned", "planned", "unfinished", "repaired", "repair_ms", "up_ms")


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster", "broker", "broker_id"])


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return _summed(history, window, thresholds, ["cluster"])


def _summed(history: History, window: Window, thresholds: Thresholds, keys: list[str]) -> DataFrame:
    known = seats(before_end(history.changes, window)).select("seat_key", "cluster", "broker", "broker_id")
    begins = (F.col("state") == DOWN) & starts_inside(window)
    is_repaired = begins & F.col("unplanned") & (F.coalesce(F.col("then"), F.lit(0)) == UP)
    # By cause first, so that the counts of causes and all other sums are made in one go.
    by_cause = (
        intervals(history.changes, window, thresholds)
        .join(known, "seat_key")
        .groupBy(*keys, F.when(begins, F.coalesce("cause", F.lit(""))).alias("cause"))
        .agg(
            F.sum(flag(begins)).alias("number"),
            F.sum(flag(begins & F.col("unplanned"))).alias("unplanned"),
            F.sum(flag(begins & ~F.col("unplanned"))).alias("planned"),
            F.sum(flag(begins & F.col("unplanned") & ~is_repaired)).alias("unfinished"),
            F.sum(flag(is_repaired)).alias("repaired"),
            F.sum(F.when(is_repaired, F.col("end_ms") - F.col("start_ms")).otherwise(0)).alias("repair_ms"),
            F.sum(F.when(F.col("state") == UP, F.col("length_ms")).otherwise(0)).alias("up_ms"),
        )
    )
    cause = F.when(F.col("number") > 0, F.struct("cause", "number"))
    found = by_cause.groupBy(*keys).agg(
        F.map_from_entries(F.sort_array(F.collect_list(cause))).alias("causes"),
        *[F.sum(name).alias(name) for name in _SUMMED],
    )
    absent = {name: F.lit(None).cast(FAILURES[name].dataType) for name in ("broker", "broker_id") if name not in keys}
    return shaped(
        found.withColumns(
            {
                **absent,
                "mtbf_ms": F.try_divide("up_ms", "unplanned"),
                "mttr_ms": F.try_divide("repair_ms", "repaired"),
            }
        ),
        FAILURES,
    )
