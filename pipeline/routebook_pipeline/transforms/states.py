"""What is known of a seat, and from when on.

| state | begins with |
|---|---|
| UP | codes 10, 11, 61 |
| DOWN | code 12; planned or not is said by the cause of the first one |
| UNKNOWN | a hole or fork, for every seat heard of before it, at the time of the last entry before it |
| GONE | the end of a whole baseline, for a seat that was last heard of before its begin |

A seat that is DOWN is not GONE by a baseline: that it is not there is what is known already, and a broker that crashed
shall not cease to be missed at the next midnight.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.kinds import UNPLANNED_CAUSES, Kind
from routebook_pipeline.transforms.marks import baselines, losses_with_start

UP: Final = 1
DOWN: Final = 2
UNKNOWN: Final = 3
GONE: Final = 4

COMES: Final = (int(Kind.BROKER_REGISTERED), int(Kind.BROKER_CHANGED), int(Kind.BASELINE_SEAT))
_SAYS: Final = (*COMES, int(Kind.BROKER_REMOVED))


def is_evidence() -> Column:
    """The entry speaks of one seat."""
    return (F.col("row") == 0) & F.col("code").isin(*_SAYS) & F.col("broker_id").isNotNull()


def evidence(changes: DataFrame) -> DataFrame:
    return changes.where(is_evidence())


def is_up() -> Column:
    return F.col("code").isin(*COMES)


def is_unplanned() -> Column:
    return F.coalesce(F.col("cause").isin(*UNPLANNED_CAUSES), F.lit(False))


def seats(changes: DataFrame) -> DataFrame:
    """Every seat heard of, with its names: `first_ord`, and `first_ms`, the time of its first evidence."""
    return (
        evidence(changes)
        .groupBy("seat_key", "group_key", "cluster", "broker", "broker_id")
        .agg(F.min("ord").alias("first_ord"), F.min_by("ms", "ord").alias("first_ms"))
    )


def timeline(changes: DataFrame) -> DataFrame:
    """What is said of each seat, one after the other by `ord`: its own evidence, and those losses and baselines that
    mean something to it. `before` is the state until then.
    """
    nothing = F.lit(None)
    own = evidence(changes).select(
        "seat_key",
        "ord",
        "ms",
        F.when(is_up(), F.lit(UP)).otherwise(F.lit(DOWN)).alias("state"),
        is_unplanned().alias("unplanned"),
        "cause",
        nothing.cast("long").alias("begin"),
    )
    marks = (
        losses_with_start(changes)
        .select(
            "ord",
            F.coalesce("start_ms", "ms").alias("ms"),
            F.lit(UNKNOWN).alias("state"),
            nothing.cast("long").alias("begin"),
        )
        .unionByName(baselines(changes).select("ord", "ms", F.lit(GONE).alias("state"), "begin"))
    )
    of_all = (
        seats(changes)
        .select("seat_key", "first_ord")
        .join(F.broadcast(marks), F.col("ord") > F.col("first_ord"))
        .select(
            "seat_key",
            "ord",
            "ms",
            "state",
            F.lit(False).alias("unplanned"),
            nothing.cast("string").alias("cause"),
            "begin",
        )
    )
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    until_now = in_turn.rowsBetween(W.unboundedPreceding, -1)
    is_own = F.col("state") <= DOWN
    # Place and state of the last own evidence in one number: every running value costs a pass over all rows.
    last_own = F.last(F.when(is_own, 2 * F.col("ord") + F.col("state") - UP), ignorenulls=True).over(until_now)
    last_loss = F.last(F.when(F.col("state") == UNKNOWN, F.col("ord")), ignorenulls=True).over(until_now)
    own_ord = F.shiftright("last_own", 1)
    is_known_down = (F.col("last_own") % 2 == 1) & (F.coalesce("last_loss", F.lit(-1)) < own_ord)
    says_something = (F.col("state") != GONE) | ((own_ord < F.col("begin")) & ~is_known_down)
    return (
        own.unionByName(of_all)
        .withColumn("last_own", last_own)
        .withColumn("last_loss", last_loss)
        .where(says_something)
        .withColumn("before", F.lag("state").over(in_turn))
        .drop("begin", "last_own", "last_loss")
    )
