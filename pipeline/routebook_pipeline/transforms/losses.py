"""The entries that affect every seat and queue at once: losses (holes and forks) and complete baselines.

After a loss nothing is known until newer entries say it again. At the end of a baseline, everything that the baseline
did not name is gone.

A baseline is complete if it has a begin and an end, and neither a hole nor a fork lies between them: a missing entry
might have named a seat. A baseline that never ends has no effect.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Instants

LOSSES: Final = (int(Kind.HOLE), int(Kind.FORK))
_MARKS: Final = (*LOSSES, int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END))


def is_entry() -> Column:
    """Row 0 of an entry that the service wrote, readable or not. A hole or fork is not an entry."""
    return (F.col("row") == 0) & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES)


def losses_and_baselines(changes: DataFrame) -> DataFrame:
    """The losses, and the end of each complete baseline with the `ord` of its begin as `begin` (null for losses).

    These are few rows.
    """
    found = changes.where(F.col("code").isin(*_MARKS) & (F.col("row") == 0)).select(
        "ord", "ms", "code", "from_version", "to_version"
    )
    before = W.orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    is_begin = F.col("code") == int(Kind.BASELINE_BEGIN)
    last_begin = F.last(F.when(is_begin, F.col("ord")), ignorenulls=True).over(before)
    last_other = F.coalesce(F.last(F.when(~is_begin, F.col("ord")), ignorenulls=True).over(before), F.lit(-1))
    return (
        found.withColumns({"last_begin": last_begin, "last_other": last_other})
        .withColumn("begin", F.when(_is_end() & (F.col("last_other") < F.col("last_begin")), F.col("last_begin")))
        .where(F.col("begin").isNotNull() | _is_loss())
        .drop("last_begin", "last_other")
    )


def baselines(changes: DataFrame) -> DataFrame:
    """The complete baselines: `begin`, and the place of the end as `ord` and `ms`."""
    return losses_and_baselines(changes).where(_is_end()).select("ord", "ms", "begin")


def losses(changes: DataFrame) -> DataFrame:
    """The holes and forks: `ord`, `ms`, `code` and the versions."""
    lost = changes.where(_is_loss() & (F.col("row") == 0))
    return lost.select("ord", "ms", "code", "from_version", "to_version")


def losses_with_start(changes: DataFrame) -> DataFrame:
    """The losses with the time (`start_ms`) and `ord` (`entry_before`) of the last entry before them.

    Nothing is known from that entry on. Both are null if there was no entry before.
    """
    lost = losses(changes)
    entries = changes.where(is_entry()).select(F.col("ord").alias("entry"), F.col("ms").alias("entry_ms"))
    before = (
        entries.join(F.broadcast(lost.select("ord")), F.col("entry") < F.col("ord"))
        .groupBy("ord")
        .agg(F.max_by("entry_ms", "entry").alias("start_ms"), F.max("entry").alias("entry_before"))
    )
    return lost.join(F.broadcast(before), "ord", "left")


def validity_at(changes: DataFrame, instants: Instants) -> DataFrame:
    """One row per instant that says which earlier rows are still valid.

    `last_loss_ord`: the last loss. `baseline_begin`: the begin of the last complete baseline; what no entry has named
    since then is gone. `certain`, `doubt_from_version`, `doubt_to_version`: the missing versions that no baseline has
    repaired yet.
    """
    is_loss = F.col("begin").isNull()
    aggregates = [
        F.max(F.when(is_loss, F.col("ord"))).alias("last_loss_ord"),
        F.max("begin").alias("baseline_begin"),
        F.collect_list(F.when(is_loss, F.struct("ord", "from_version", "to_version"))).alias("losses"),
    ]
    visible = instants.for_each(losses_and_baselines(changes))
    if len(instants.ordered) == 1:
        found = visible.agg(*aggregates).withColumn("at", F.lit(0))
    else:
        per_instant = F.broadcast(visible.groupBy("at").agg(*aggregates))
        found = instants.frame(changes).join(per_instant, "at", "left")
    unrepaired = F.filter("losses", lambda loss: loss["ord"] > F.coalesce(F.col("baseline_begin"), F.lit(-1)))
    return found.withColumn("losses", unrepaired).select(
        "at",
        "last_loss_ord",
        "baseline_begin",
        F.array_min(F.transform("losses", lambda loss: loss["from_version"])).alias("doubt_from_version"),
        F.array_max(F.transform("losses", lambda loss: loss["to_version"])).alias("doubt_to_version"),
        (F.coalesce(F.size("losses"), F.lit(0)) <= 0).alias("certain"),
    )


def _is_loss() -> Column:
    return F.col("code").isin(*LOSSES)


def _is_end() -> Column:
    return F.col("code") == int(Kind.BASELINE_END)
