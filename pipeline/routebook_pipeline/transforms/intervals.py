"""Stretches of time in which a seat was in one state."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import Thresholds, Window
from routebook_pipeline.transforms.states import DOWN, timeline


def before_end(rows: DataFrame, window: Window) -> DataFrame:
    """Entries at or behind the end of the window never count, so that the answer to a closed window never changes."""
    return rows.where(F.col("ms") < F.lit(window.end_ms))


def intervals(changes: DataFrame, window: Window, thresholds: Thresholds) -> DataFrame:
    """Of every seat, by `ord` of what began it: `state`, `unplanned` and `cause` (of the first, for DOWN), `start_ms`,
    `end_ms` (null: still so at the end of the window), `before` and `then` (the states around it). What counts lies in
    [`from_ms`, `to_ms`) and is `length_ms` long: inside the window, and of DOWN at most as much as a broker that was
    taken away shall hurt.
    """
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    found = (
        timeline(before_end(changes, window))
        .withColumn("end_ms", F.lead("ms").over(in_turn))
        .withColumn("then", F.lead("state").over(in_turn))
        .withColumnRenamed("ms", "start_ms")
    )
    end = F.least(F.coalesce("end_ms", F.lit(window.end_ms)), F.lit(window.end_ms))
    counted_end = F.when(
        F.col("state") == DOWN, F.least(end, F.col("start_ms") + F.lit(thresholds.retire_after_ms))
    ).otherwise(end)
    return (
        found.withColumn("from_ms", F.greatest("start_ms", F.lit(window.start_ms)))
        .withColumn("to_ms", counted_end)
        .withColumn("length_ms", F.greatest(F.lit(0), F.col("to_ms") - F.col("from_ms")))
    )


def starts_inside(window: Window, column: str = "start_ms") -> Column:
    return (F.col(column) >= F.lit(window.start_ms)) & (F.col(column) < F.lit(window.end_ms))
