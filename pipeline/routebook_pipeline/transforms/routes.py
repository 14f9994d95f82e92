"""1 What did the service answer at an instant? And its answer as the service's JSON.

2 What became of the routes between two instants, and what happened in between?
"""

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import ROUTE, ROUTE_DIFF
from routebook_pipeline.transforms.frames import select_schema
from routebook_pipeline.transforms.instants import Points, sees
from routebook_pipeline.transforms.losses import standing_at
from routebook_pipeline.transforms.route_table import addresses, groups_at, is_named, last_at


def routes_at(history: History, instant: Instant, topic: str | None = None) -> DataFrame:
    return select_schema(routes(history.changes, Points([instant]), topic), ROUTE)


def routes(changes: DataFrame, points: Points, topic: str | None = None) -> DataFrame:
    """As `shapes.ROUTE`, with `at`: the number of the instant."""
    return (
        last_at(changes, points, topic)
        .join(groups_at(changes, points).withColumnRenamed("cluster", "owner"), ["at", "broker"], "left")
        .join(F.broadcast(standing_at(changes, points)), "at")
        .where(is_named())
        .withColumns(
            {
                "cluster": F.coalesce("owner", "cluster"),
                "acting": F.coalesce("acting", F.lit(False)),
                "addresses": addresses(),
            }
        )
        .drop("owner", "seats", "ord", "row", "lost_ord", "named_from")
    )


def route_json(rows: Iterable[Row | dict[str, Any]]) -> dict[str, Any] | None:
    """Rows of one topic (`shapes.ROUTE`) as `GET /v1/routes/{topic}` shows them, before an acting master is put under
    id 0; None when there are none. A group whose last seat was given up is there without addresses, as in the service.
    """
    ordered = sorted(
        (row.asDict() if isinstance(row, Row) else row for row in rows), key=lambda row: str(row["broker"])
    )
    if not ordered:
        return None
    return {
        "brokerDatas": [_broker_data(row) for row in ordered],
        "queueDatas": [
            {
                "brokerName": row["broker"],
                "perm": row["perm"],
                "readQueueNums": row["read_queues"],
                "topicSysFlag": row["flags"],
                "writeQueueNums": row["write_queues"],
            }
            for row in ordered
        ],
    }


def _broker_data(row: dict[str, Any]) -> dict[str, Any]:
    data = {
        "brokerAddrs": {str(number): address for number, address in sorted(row["addresses"].items())},
        "brokerName": row["broker"],
        "cluster": row["cluster"],
        "enableActingMaster": row["acting"],
    }
    return data if row["zone"] is None else {**data, "zoneName": row["zone"]}


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
    return select_schema(_with_entries(found, history.changes.where(sees(later) & ~sees(earlier))), ROUTE_DIFF)


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
