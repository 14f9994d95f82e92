"""2 What became of the routes between two instants, and what happened in between?"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.shapes import ROUTE_DIFF
from routebook_pipeline.transforms.points import sees
from routebook_pipeline.transforms.route import routes_at
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
    both = _side(history, earlier, "before").join(_side(history, later, "after"), ["topic", "broker"], "full_outer")
    difference = (
        F.when(F.col("present_before").isNull(), F.lit("added"))
        .when(F.col("present_after").isNull(), F.lit("removed"))
        .when(_differs(), F.lit("changed"))
    )
    found = (
        both.withColumn("difference", difference)
        .where(F.col("difference").isNotNull())
        .withColumn("cluster", F.coalesce("cluster_after", "cluster_before"))
    )
    between = history.changes.where(sees(later) & ~sees(earlier))
    return shaped(
        found.join(_entries(found, between), ["topic", "broker"], "left").withColumn(
            "entries", F.coalesce("entries", F.array().cast(ROUTE_DIFF["entries"].dataType))
        ),
        ROUTE_DIFF,
    )


def _side(history: History, instant: Instant, name: str) -> DataFrame:
    seen = routes_at(history, instant).withColumn("present", F.lit(True))
    return seen.select(
        "topic", "broker", *[F.col(column).alias(f"{column}_{name}") for column in ("present", "cluster", *_VALUES)]
    )


def _differs() -> Column:
    differs = F.lit(False)
    for value in _VALUES:
        before, after = F.col(f"{value}_before"), F.col(f"{value}_after")
        if value == "addresses":  # maps have no order of their own, so Spark does not compare them
            before, after = F.sort_array(F.map_entries(before)), F.sort_array(F.map_entries(after))
        differs = differs | ~before.eqNullSafe(after)
    return differs


def _entries(found: DataFrame, between: DataFrame) -> DataFrame:
    """Of each (topic, broker) that differs: its own items, and what concerns its group as a whole."""
    facts = ("version", "kind", "cause", "actor", "source")
    heads = between.where(F.col("row") == 0).select("ord", *facts)
    pairs = found.select("topic", "broker")
    own = between.where(F.col("topic").isNotNull()).select("topic", "broker", "ord")
    whole = between.where((F.col("row") == 0) & F.col("code").isin(*[int(kind) for kind in _OF_A_GROUP])).select(
        "broker", "ord"
    )
    proven = pairs.join(own, ["topic", "broker"]).unionByName(pairs.join(whole, "broker")).distinct()
    told = F.transform(
        F.sort_array(F.collect_list(F.struct("ord", *facts))),
        lambda entry: F.struct(*[entry[fact].alias(fact) for fact in facts]),
    )
    return proven.join(heads, "ord").groupBy("topic", "broker").agg(told.alias("entries"))
