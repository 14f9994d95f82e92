"""What concerns every seat and queue at once: a hole or a fork (from there on nobody knows), and the end of a baseline
(what it did not name is not there).

A baseline counts when it is whole: it has a begin and an end, and neither a hole nor a fork between them, since what
lies in there may have been its naming of a seat. One that was begun and never ended does nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Points

LOSSES: Final = (int(Kind.HOLE), int(Kind.FORK))
_MARKS: Final = (*LOSSES, int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END))


def is_entry() -> Column:
    """Rows 0 of what the service wrote (readable or not); a hole or a fork is none."""
    return (F.col("row") == 0) & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES)


def marks(changes: DataFrame) -> DataFrame:
    """Losses (`begin` is null) and the ends of whole baselines, with the place of their `begin`: few rows."""
    found = changes.where(F.col("code").isin(*_MARKS) & (F.col("row") == 0)).select(
        "ord", "ms", "code", "from_version", "to_version"
    )
    before = W.orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    is_begin = F.col("code") == int(Kind.BASELINE_BEGIN)
    begun = F.last(F.when(is_begin, F.col("ord")), ignorenulls=True).over(before)
    broken = F.coalesce(F.last(F.when(~is_begin, F.col("ord")), ignorenulls=True).over(before), F.lit(-1))
    return (
        found.withColumns({"begun": begun, "broken": broken})
        .withColumn("begin", F.when(_is_end() & (F.col("broken") < F.col("begun")), F.col("begun")))
        .where(F.col("begin").isNotNull() | _is_loss())
        .drop("begun", "broken")
    )


def baselines(changes: DataFrame) -> DataFrame:
    """Whole baselines: `begin`, and as `ord` and `ms` the place of the end."""
    return marks(changes).where(_is_end()).select("ord", "ms", "begin")


def losses(changes: DataFrame) -> DataFrame:
    """Holes and forks: `ord`, `ms`, `code`, and the versions."""
    lost = changes.where(_is_loss() & (F.col("row") == 0))
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
    is_loss = F.col("begin").isNull()
    sums = [
        F.max(F.when(is_loss, F.col("ord"))).alias("lost_ord"),
        F.max("begin").alias("named_from"),
        F.collect_list(F.when(is_loss, F.struct("ord", "from_version", "to_version"))).alias("losses"),
    ]
    every = points.each(marks(changes))
    if len(points.instants) == 1:
        summed = every.agg(*sums).withColumn("at", F.lit(0))
    else:
        summed = points.frame(changes).join(F.broadcast(every.groupBy("at").agg(*sums)), "at", "left")
    unrepaired = F.filter("losses", lambda loss: loss["ord"] > F.coalesce(F.col("named_from"), F.lit(-1)))
    return summed.withColumn("losses", unrepaired).select(
        "at",
        "lost_ord",
        "named_from",
        F.array_min(F.transform("losses", lambda loss: loss["from_version"])).alias("doubt_from_version"),
        F.array_max(F.transform("losses", lambda loss: loss["to_version"])).alias("doubt_to_version"),
        (F.coalesce(F.size("losses"), F.lit(0)) <= 0).alias("certain"),
    )


def _is_loss() -> Column:
    return F.col("code").isin(*LOSSES)


def _is_end() -> Column:
    return F.col("code") == int(Kind.BASELINE_END)
