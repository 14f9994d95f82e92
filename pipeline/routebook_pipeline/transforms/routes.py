"""1 `route`: the routes at an instant, also as the service's JSON; 2 `route-diff`: how routes changed in between."""

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import ROUTE, ROUTE_DIFF
from routebook_pipeline.transforms.frames import select_schema
from routebook_pipeline.transforms.instants import Instants, is_visible_at
from routebook_pipeline.transforms.losses import validity_at
from routebook_pipeline.transforms.route_table import addresses, groups_at, queues_at, survives_baselines


def routes_at(history: History, instant: Instant, topic: str | None = None) -> DataFrame:
    return select_schema(routes(history.changes, Instants([instant]), topic), ROUTE)


def routes(changes: DataFrame, instants: Instants, topic: str | None = None) -> DataFrame:
    """The columns of `schemas.ROUTE`, and `at`: the number of the instant."""
    return (
        queues_at(changes, instants, topic)
        .join(groups_at(changes, instants).withColumnRenamed("cluster", "owner"), ["at", "broker"], "left")
        .join(F.broadcast(validity_at(changes, instants)), "at")
        .where(survives_baselines())
        .withColumns(
            {
                "cluster": F.coalesce("owner", "cluster"),
                "acting": F.coalesce("acting", F.lit(False)),
                "addresses": addresses(),
            }
        )
        .drop("owner", "seats", "ord", "row", "last_loss_ord", "baseline_begin")
    )


def route_json(rows: Iterable[Row | dict[str, Any]]) -> dict[str, Any] | None:
    """The rows of one topic as `GET /v1/routes/{topic}` shows them; None if there are none.

    Acting masters are not put under id 0. A group whose last seat was given up is listed without addresses, as in the
    service.
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
_GROUP_KINDS: Final = (
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
    between = history.changes.where(is_visible_at(later) & ~is_visible_at(earlier))
    return select_schema(_with_entries(found, between), ROUTE_DIFF)


def _two_routes(history: History, earlier: Instant, later: Instant) -> DataFrame:
    """The routes at the earlier (`at` 0) and the later instant (`at` 1).

    Both are computed in one pass if it is certain that the later instant includes the earlier one.
    """
    is_nested = (earlier.ms is not None and later.ms is not None and earlier.ms < later.ms) or (
        earlier.ord is not None and later.ord is not None and earlier.ord < later.ord
    )
    if is_nested:
        return routes(history.changes, Instants([earlier, later]))
    one, other = (routes(history.changes, Instants([instant])) for instant in (earlier, later))
    return one.unionByName(other.withColumn("at", F.lit(1)))


def _differs() -> Column:
    differs = F.lit(False)
    for value in _VALUES:
        before, after = F.col(f"{value}_before"), F.col(f"{value}_after")
        if value == "addresses":  # Spark does not compare maps, since they have no order
            before, after = F.sort_array(F.map_entries(before)), F.sort_array(F.map_entries(after))
        differs = differs | ~before.eqNullSafe(after)
    return differs


def _with_entries(found: DataFrame, between: DataFrame) -> DataFrame:
    """Adds the entries of each (topic, broker): those with one of its items, and those about its group as a whole."""
    fields = ("version", "kind", "cause", "actor", "source")
    entry = F.struct("ord", *fields)
    heads = between.where(F.col("row") == 0)
    own = (
        between.where(F.col("topic").isNotNull())
        .select("topic", "broker", "ord")
        .join(heads.select("ord", *fields), "ord")
        .groupBy("topic", "broker")
        .agg(F.collect_list(entry).alias("own"))
    )
    of_group = (
        heads.where(F.col("code").isin(*[int(kind) for kind in _GROUP_KINDS]))
        .groupBy("broker")
        .agg(F.collect_list(entry).alias("of_group"))
    )
    none = F.array().cast(own.schema["own"].dataType)
    by_ord = F.sort_array(F.array_union(F.coalesce("own", none), F.coalesce("of_group", none)))
    entries = F.transform(by_ord, lambda one: F.struct(*[one[field].alias(field) for field in fields]))
    return found.join(own, ["topic", "broker"], "left").join(of_group, "broker", "left").withColumn("entries", entries)
