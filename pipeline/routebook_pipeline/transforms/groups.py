"""Flags and cluster of a group, by the broker's name as the service has it.

Every registration sets zone and acting flag, one that was turned down included (it leaves a `group-changed` behind); a
group belongs to the cluster that its first member named, for as long as it is not removed.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 a Window is ours: from an instant to another
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.points import Points, latest
from routebook_pipeline.transforms.queues import NEVER, removals
from routebook_pipeline.transforms.states import COMES

_SAYS: Final = (*COMES, int(Kind.GROUP_CHANGED))


def marked(changes: DataFrame) -> DataFrame:
    """The entries that say what a group looks like."""
    return changes.where((F.col("row") == 0) & F.col("code").isin(*_SAYS) & F.col("broker").isNotNull())


def groups_at(changes: DataFrame, points: Points) -> DataFrame:
    """`at`, `broker`, `cluster`, `zone`, `acting`, of every group that was heard of."""
    said = marked(changes)
    names = said.select("ord", "cluster", "broker", "zone", "acting")
    last = points.last(said, ["group_key"]).join(names, "ord")
    under = W.partitionBy("at", "broker")
    flags = latest(last.withColumn("clusters", F.count("cluster").over(under)), ["at", "broker"])
    owners = _first_clusters(changes, flags.where(F.col("clusters") > 1).select("broker").distinct(), points)
    return flags.join(F.broadcast(owners), ["at", "broker"], "left").select(
        "at",
        "broker",
        F.coalesce("owner", "cluster").alias("cluster"),
        "zone",
        F.coalesce("acting", F.lit(False)).alias("acting"),
    )


def _first_clusters(changes: DataFrame, shared: DataFrame, points: Points) -> DataFrame:
    """Only for names that several clusters have used: the first to name the group since it was last removed."""
    removed = points.last(removals(changes), ["broker"]).withColumnRenamed("ord", "removed_ord")
    said = marked(changes).select("broker", "ord", "ms", "cluster").join(F.broadcast(shared), "broker")
    return (
        points.each(said)
        .join(F.broadcast(removed), ["at", "broker"], "left")
        .where(F.col("ord") > F.coalesce("removed_ord", F.lit(NEVER)))
        .groupBy("at", "broker")
        .agg(F.min_by("cluster", "ord").alias("owner"))
    )
