"""Seats and flags of a group, by the broker's name as the service has it: a name has one table of seats, whichever
cluster its brokers say they belong to.

Every registration sets zone and acting flag, one that was turned down included (it leaves a `group-changed` behind); a
group belongs to the cluster that its first member named, for as long as it is not removed.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.points import Points
from routebook_pipeline.transforms.queues import NEVER, is_removal
from routebook_pipeline.transforms.states import COMES, is_evidence

_MARKS: Final = (*COMES, int(Kind.GROUP_CHANGED))


def marks_group() -> Column:
    """The entry says what the group looks like."""
    return (F.col("row") == 0) & F.col("code").isin(*_MARKS) & F.col("broker").isNotNull()


def groups_at(changes: DataFrame, points: Points) -> DataFrame:
    """`at`, `broker`, `cluster`, `zone`, `acting`, and the last word of each seat (`seats`), of every group that was
    heard of. `addresses` makes of the seats what stands at the instant.
    """
    word = F.struct("broker_id", "said_ord", "is_up", "addr")
    found = (
        _seats_at(changes, points)
        .groupBy("at", "broker")
        .agg(
            F.collect_list(F.when(F.col("said_ord").isNotNull(), word)).alias("seats"),
            F.max_by(F.struct("zone", "acting", "cluster"), "marked_ord").alias("last"),
        )
    )
    return found.join(F.broadcast(_first_clusters(changes, points)), ["at", "broker"], "left").select(
        "at",
        "broker",
        F.coalesce("owner", "last.cluster").alias("cluster"),
        "last.zone",
        F.coalesce("last.acting", F.lit(False)).alias("acting"),
        "seats",
    )


def addresses() -> Column:
    """id -> address of `seats` that are UP, given what stands (`lost_ord`, `named_from`): the last word about the id,
    in whichever cluster's name, is a registration behind every loss and not passed over by a baseline.
    """
    heard_since = F.greatest(F.coalesce("lost_ord", F.lit(NEVER)), F.coalesce("named_from", F.lit(NEVER)))

    def is_here(word: Column) -> Column:
        later = F.exists(
            "seats", lambda other: (other["broker_id"] == word["broker_id"]) & (other["said_ord"] > word["said_ord"])
        )
        return word["is_up"] & (word["said_ord"] > heard_since) & ~later

    here = F.transform(F.filter("seats", is_here), lambda word: F.struct(word["broker_id"], word["addr"]))
    nobody = F.create_map().cast("map<bigint,string>")
    return F.coalesce(F.map_from_entries(F.sort_array(here)), nobody)


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


def _first_clusters(changes: DataFrame, points: Points) -> DataFrame:
    """Only for names that several clusters have used: the first to name the group since it was last removed."""
    told = changes.where(marks_group() | is_removal())
    shared = (
        told.groupBy("broker")
        .agg(F.min("group_key").alias("one"), F.max("group_key").alias("other"))
        .where(F.col("one") != F.col("other"))
        .select("broker")
    )
    of_shared = told.select(
        "broker",
        "ord",
        "ms",
        F.when(is_removal(), F.col("ord")).alias("removed"),
        F.when(marks_group(), F.struct("ord", "cluster")).alias("mark"),
    ).join(F.broadcast(shared), "broker")
    lives = (
        points.each(of_shared)
        .groupBy("at", "broker")
        .agg(F.max("removed").alias("removed_ord"), F.collect_list("mark").alias("marks"))
    )
    of_this_life = F.filter("marks", lambda mark: mark["ord"] > F.coalesce(F.col("removed_ord"), F.lit(NEVER)))
    return lives.select("at", "broker", F.array_min(of_this_life)["cluster"].alias("owner"))
