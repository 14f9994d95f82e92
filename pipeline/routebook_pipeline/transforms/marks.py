"""What concerns every seat and queue at once: a hole or a fork (from there on nobody knows), and the end of a baseline
(what it did not name is not there).

A baseline counts when it is whole: it has a begin and an end, and neither a hole nor a fork between them, since what
lies in there may have been its naming of a seat. One that was begun and never ended does nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.points import Points

LOSSES: Final = (int(Kind.HOLE), int(Kind.FORK))
_MARKS: Final = (*LOSSES, int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END))


def is_entry() -> Column:
    """Rows 0 of what the service wrote (readable or not); a hole or a fork is none."""
    return (F.col("row") == 0) & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES)


def baselines(changes: DataFrame) -> DataFrame:
    """Whole baselines: `begin`, and as `ord` and `ms` the place of the end."""
    return _paired(changes).where(F.col("begin").isNotNull()).select("ord", "ms", "begin")


def losses(changes: DataFrame) -> DataFrame:
    """Holes and forks: `ord`, `ms`, `code`, and the versions."""
    lost = changes.where(F.col("code").isin(*LOSSES) & (F.col("row") == 0))
    return lost.select("ord", "ms", "code", "from_version", "to_version")


def losses_with_start(changes: DataFrame) -> DataFrame:
    """Beside them `start_ms` and `entry_before`, time and place of the last entry before: nothing is known from there
    on. Null when there was no entry before.
    """
    lost = losses(changes)
    entries = changes.where(is_entry()).select(F.col("ord").alias("entry"), F.col("ms").alias("entry_ms"))
    before = (
        entries.join(F.broadcast(lost.select("ord")), F.col("entry") < F.col("ord"))
        .groupBy("ord")
        .agg(F.max_by("entry_ms", "entry").alias("start_ms"), F.max("entry").alias("entry_before"))
    )
    return lost.join(F.broadcast(before), "ord", "left")


def standing_at(changes: DataFrame, points: Points) -> DataFrame:
    """One row an instant: `lost_ord` (the last loss), `named_from` (begin of the last whole baseline: what was not
    heard of since then is not there), and the range of versions in doubt: of losses that no baseline has repaired.
    """
    absent, lost = F.lit(None).cast("long"), F.lit(None).cast("long")
    every = points.each(
        losses(changes)
        .select("ord", "ms", "from_version", "to_version", absent.alias("begin"))
        .unionByName(
            baselines(changes).select("ord", "ms", lost.alias("from_version"), lost.alias("to_version"), F.col("begin"))
        )
    )
    is_loss = F.col("begin").isNull()
    summed = every.groupBy("at").agg(
        F.max(F.when(is_loss, F.col("ord"))).alias("lost_ord"),
        F.max("begin").alias("named_from"),
        F.collect_list(F.when(is_loss, F.struct("ord", "from_version", "to_version"))).alias("losses"),
    )
    standing = F.filter("losses", lambda loss: loss["ord"] > F.coalesce(F.col("named_from"), F.lit(-1)))
    return (
        points.frame(changes)
        .join(F.broadcast(summed.withColumn("losses", standing)), "at", "left")
        .select(
            "at",
            "lost_ord",
            "named_from",
            F.array_min(F.transform("losses", lambda loss: loss["from_version"])).alias("doubt_from_version"),
            F.array_max(F.transform("losses", lambda loss: loss["to_version"])).alias("doubt_to_version"),
            (F.coalesce(F.size("losses"), F.lit(0)) <= 0).alias("certain"),
        )
    )


def _paired(changes: DataFrame) -> DataFrame:
    """Ends of baselines, with the begin they belong to."""
    marks = changes.where(F.col("code").isin(*_MARKS) & (F.col("row") == 0)).select("ord", "ms", "code")
    before = W.orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    is_begin = F.col("code") == int(Kind.BASELINE_BEGIN)
    begun = F.last(F.when(is_begin, F.col("ord")), ignorenulls=True).over(before)
    broken = F.last(F.when(~is_begin, F.col("ord")), ignorenulls=True).over(before)
    return (
        marks.withColumn("begun", begun)
        .withColumn("broken", broken)
        .where(F.col("code") == int(Kind.BASELINE_END))
        .withColumn("begin", F.when(F.coalesce(F.col("broken"), F.lit(-1)) < F.col("begun"), F.col("begun")))
    )
