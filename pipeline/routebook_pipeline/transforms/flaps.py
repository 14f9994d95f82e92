"""5 Which seats went down and came back at once, or again and again?"""

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.shapes import FLAPS
from routebook_pipeline.transforms.intervals import before_end, intervals, starts_inside
from routebook_pipeline.transforms.shaping import flag, shaped, version_of
from routebook_pipeline.transforms.states import DOWN, UP, seats


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    known = seats(before_end(history.changes, window)).select("seat_key", "cluster", "broker", "broker_id")
    is_episode = F.col("number") >= thresholds.episode_minimum
    episode = F.when(is_episode, F.struct("first_ms", "last_ms", "number"))
    found = (
        _rows_of_downs(history, window, thresholds)
        .groupBy("seat_key")
        .agg(F.sum("flaps").alias("flaps"), F.sort_array(F.collect_list(episode)).alias("episodes"))
        .where((F.col("flaps") > 0) | (F.size("episodes") > 0))
    )
    return shaped(found.join(known, "seat_key"), FLAPS)


def episodes(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """`seat_key`, `first_ms`, `last_ms`, `number`, and the `versions` of the entries that began them."""
    return _rows_of_downs(history, window, thresholds).where(F.col("number") >= thresholds.episode_minimum)


def _rows_of_downs(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """DOWN states that follow closely upon each other are one row."""
    is_flap = (F.coalesce(F.col("then"), F.lit(0)) == UP) & (
        F.col("end_ms") - F.col("start_ms") < F.lit(thresholds.flap_ms)
    )
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    apart = F.col("start_ms") - F.lag("start_ms").over(in_turn) > F.lit(thresholds.episode_gap_ms)
    return (
        intervals(history.changes, window, thresholds)
        .where((F.col("state") == DOWN) & starts_inside(window))
        .withColumn("apart", flag(apart))
        .withColumn("row_number", F.sum("apart").over(in_turn))
        .groupBy("seat_key", "row_number")
        .agg(
            F.min("start_ms").alias("first_ms"),
            F.max("start_ms").alias("last_ms"),
            F.count("*").alias("number"),
            F.sum(flag(is_flap)).alias("flaps"),
            F.sort_array(F.collect_list(version_of())).alias("versions"),
        )
    )
