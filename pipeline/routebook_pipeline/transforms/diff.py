"""2 What became of the routes between two instants, and what happened in between?"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.shapes import ROUTE_DIFF
from routebook_pipeline.transforms.points import Points, sees
from routebook_pipeline.transforms.route import routes
from routebook_pipeline.transforms.shaping import shaped

_VALUES: Final = ("read_queues", "write_queues", "perm", "flags", "addresses")
_OF_A_GROUP: Final = (
    Kind.BROKER_REGISTERED,
    Kind.BROKER_CHANGED,
    Kind.BROKER_REMOVED,
    Kind.GROUP_CHANGED,
    Kind.WRITE_PERMISSION,
    Kind.BASELINE_SEAT,
)


def route_diff(history: History, earlier: Instant, later: Instant) -> DataFrame:
    sides = [
        F.max_by(column, F.when(F.col("at") == at, F.lit(1))).alias(f"{column}_{name}")
        for at, name in enumerate(("before", "after"))
        for column in ("present", "cluster", *_VALUES)
    ]
    both = _two_routes(history, earlier, later).withColumn("present", F.lit(True))
    difference = (
        F.when(F.col("present_before").isNull(), F.lit("added"))
        .when(F.col("present_after").isNull(), F.lit("removed"))
        .when(_differs(), F.lit("changed"))
    )
    found = (
        both.groupBy("topic", "broker")
        .agg(*sides)
        .withColumns({"difference": difference, "cluster": F.coalesce("cluster_after", "cluster_before")})
        .where(F.col("difference").isNotNull())
    )
    return shaped(_with_entries(found, history.changes.where(sees(later) & ~sees(earlier))), ROUTE_DIFF)


def _two_routes(history: History, earlier: Instant, later: Instant) -> DataFrame:
    """`at` 0 and 1. In one go when the one surely sees all that the other does."""
    is_nested = (earlier.ms is not None and later.ms is not None and earlier.ms < later.ms) or (
        earlier.ord is not None and later.ord is not None and earlier.ord < later.ord
    )
    if is_nested:
        return routes(history.changes, Points([earlier, later]))
    one, other = (routes(history.changes, Points([instant])) for instant in (earlier, later))
    return one.unionByName(other.withColumn("at", F.lit(1)))


def _differs() -> Column:
    differs = F.lit(False)
    for value in _VALUES:
        before, after = F.col(f"{value}_before"), F.col(f"{value}_after")
        if value == "addresses":  # maps have no order of their own, so Spark does not compare them
            before, after = F.sort_array(F.map_entries(before)), F.sort_array(F.map_entries(after))
        differs = differs | ~before.eqNullSafe(after)
    return differs


def _with_entries(found: DataFrame, between: DataFrame) -> DataFrame:
    """Of each (topic, broker): its own items' entries, and what concerns its group as a whole."""
    facts = ("version", "kind", "cause", "actor", "source")
    entry = F.struct("ord", *facts)
    heads = between.where(F.col("row") == 0)
    own = (
        between.where(F.col("topic").isNotNull())
        .select("topic", "broker", "ord")
        .join(heads.select("ord", *facts), "ord")
        .groupBy("topic", "broker")
        .agg(F.collect_list(entry).alias("own"))
    )
    whole = (
        heads.where(F.col("code").isin(*[int(kind) for kind in _OF_A_GROUP]))
        .groupBy("broker")
        .agg(F.collect_list(entry).alias("whole"))
    )
    none = F.array().cast(own.schema["own"].dataType)
    told = F.sort_array(F.array_union(F.coalesce("own", none), F.coalesce("whole", none)))
    shown = F.transform(told, lambda one: F.struct(*[one[fact].alias(fact) for fact in facts]))
    return found.join(own, ["topic", "broker"], "left").join(whole, "broker", "left").withColumn("entries", shown)
