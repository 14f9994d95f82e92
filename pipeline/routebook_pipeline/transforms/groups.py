"""Seats and flags of a group, by the broker's name as the service has it: a name has one table of seats, whichever
cluster its brokers say they belong to.

Every registration sets zone and acting flag, one that was turned down included (it leaves a `group-changed` behind); a
group belongs to the cluster that its first member named, for as long as it is not removed.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.marks import standing_at
from routebook_pipeline.transforms.points import Points
from routebook_pipeline.transforms.queues import NEVER, is_removal
from routebook_pipeline.transforms.states import COMES, is_evidence

_MARKS: Final = (*COMES, int(Kind.GROUP_CHANGED))


def marks_group() -> Column:
    """The entry says what the group looks like."""
    return (F.col("row") == 0) & F.col("code").isin(*_MARKS) & F.col("broker").isNotNull()


def groups_at(changes: DataFrame, points: Points) -> DataFrame:
    """`at`, `broker`, `cluster`, `zone`, `acting`, `addresses` (id -> address of the seats that are UP) of every group
    that was heard of. One that is removed has no addresses.
    """
    seat = _seats_at(changes, points)
    is_last_word = F.row_number().over(W.partitionBy("at", "broker", "broker_id").orderBy(F.desc("said_ord"))) == 1
    heard_of_since = F.greatest(F.coalesce("lost_ord", F.lit(NEVER)), F.coalesce("named_from", F.lit(NEVER)))
    is_here = F.col("is_last_word") & F.col("is_up") & (F.col("said_ord") > heard_of_since)
    here = F.sort_array(F.collect_list(F.when(is_here, F.struct("broker_id", "addr"))))
    found = (
        seat.withColumn("is_last_word", is_last_word)
        .join(F.broadcast(standing_at(changes, points).select("at", "lost_ord", "named_from")), "at")
        .groupBy("at", "broker")
        .agg(
            F.map_from_entries(here).alias("addresses"),
            F.max_by("zone", "marked_ord").alias("zone"),
            F.coalesce(F.max_by("acting", "marked_ord"), F.lit(False)).alias("acting"),
            F.max_by("cluster", "marked_ord").alias("cluster"),
            (F.min("cluster") != F.max("cluster")).alias("is_shared"),
        )
    )
    owners = _first_clusters(changes, found.where("is_shared").select("broker").distinct(), points)
    return found.join(F.broadcast(owners), ["at", "broker"], "left").select(
        "at", "broker", F.coalesce("owner", "cluster").alias("cluster"), "zone", "acting", "addresses"
    )


def _seats_at(changes: DataFrame, points: Points) -> DataFrame:
    """The last word of every seat (`said_ord`, `is_up`) and its last registration (`marked_ord`); a group without a
    seat has a row of its own when an entry speaks of it.
    """
    said = changes.where(is_evidence() | marks_group()).select(
        F.coalesce("seat_key", "group_key").alias("key"),
        "ord",
        "ms",
        F.when(is_evidence(), F.col("ord")).alias("said"),
        F.when(marks_group(), F.col("ord")).alias("marked"),
    )
    last = points.highest(said, ["key"], {"said": "said_ord", "marked": "marked_ord"})
    names = changes.where(is_evidence() | marks_group()).select(
        "ord", "cluster", "broker", "broker_id", "addr", "zone", "acting"
    )
    return last.withColumns(
        {
            "ord": F.coalesce("marked_ord", "said_ord"),
            "is_up": F.coalesce(F.col("said_ord") == F.col("marked_ord"), F.lit(False)),
        }
    ).join(names, "ord")


def _first_clusters(changes: DataFrame, shared: DataFrame, points: Points) -> DataFrame:
    """Only for names that several clusters have used: the first to name the group since it was last removed."""
    told = changes.where(marks_group() | is_removal()).select(
        "broker",
        "ord",
        "ms",
        F.when(is_removal(), F.col("ord")).alias("removed"),
        F.when(marks_group(), F.struct("ord", "cluster")).alias("mark"),
    )
    lives = (
        points.each(told.join(F.broadcast(shared), "broker"))
        .groupBy("at", "broker")
        .agg(F.max("removed").alias("removed_ord"), F.collect_list("mark").alias("marks"))
    )
    of_this_life = F.filter("marks", lambda mark: mark["ord"] > F.coalesce(F.col("removed_ord"), F.lit(NEVER)))
    return lives.select("at", "broker", F.array_min(of_this_life)["cluster"].alias("owner"))
