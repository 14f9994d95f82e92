"""1 `route`: the routes at an instant, also as the service's JSON; 2 `route-diff`: how routes changed in between."""

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import ROUTE, ROUTE_DIFF
from routebook_pipeline.transforms.frames import select_schema
from routebook_pipeline.transforms.instants import Instants, is_visible_at
from routebook_pipeline.transforms.route_table import table_at


def routes_at(history: History, instant: Instant, topic: str | None = None) -> DataFrame:
    return select_schema(routes(history, Instants([instant]), topic), ROUTE)


def routes(history: History, instants: Instants, topic: str | None = None) -> DataFrame:
    """The columns of `schemas.ROUTE`, and `at`: the number of the instant."""
    table = table_at(history, instants, topic)
    return table.where(F.col("topic").isNotNull()).withColumn("cluster", F.coalesce("owner", "cluster"))


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


_QUEUE_VALUES: Final = ("read_queues", "write_queues", "perm", "flags")
_GROUP_KINDS: Final = (
    Kind.BROKER_REGISTERED,
    Kind.BROKER_CHANGED,
    Kind.BROKER_REMOVED,
    Kind.GROUP_CHANGED,
    Kind.WRITE_PERMISSION,
    Kind.BASELINE_SEAT,
)
MAX_ENTRIES: Final = 20
"""The most entries that a row of `route-diff` lists: the newest. A broker can register thousands of times in a day."""


def route_diff(history: History, earlier: Instant, later: Instant, topic: str | None = None) -> DataFrame:
    """A row per topic and group whose queues differ, and a row without a topic per group whose addresses differ, or
    whose own entries lie between the instants and may explain why its topics differ.
    """
    between = history.changes.where(is_visible_at(later) & ~is_visible_at(earlier))
    about_group = F.col("code").isin(*[int(kind) for kind in _GROUP_KINDS]) & (F.col("row") == 0)
    entries = _newest_entries(between, F.col("topic").isNotNull() | about_group)
    same_subject = (F.col("broker") == F.col("group")) & F.col("topic").eqNullSafe(F.col("item"))
    found = (
        _differences(_two_routes(history, earlier, later, topic))
        .join(entries, same_subject, "left")
        .drop("group", "item")
        .withColumn("entry_count", F.coalesce("entry_count", F.lit(0)))
        .where(
            F.when(F.col("topic").isNotNull(), F.col("queues_differ")).otherwise(
                F.col("addresses_differ") | (F.col("queues_differ") & (F.col("entry_count") > 0))
            )
        )
    )
    none = F.array().cast(entries.schema["entries"].dataType)
    return select_schema(found.withColumn("entries", F.coalesce("entries", none)), ROUTE_DIFF)


def _two_routes(history: History, earlier: Instant, later: Instant, topic: str | None) -> DataFrame:
    """The routes at the earlier (`at` 0) and the later instant (`at` 1).

    Both are computed in one pass if it is certain that the later instant includes the earlier one.
    """
    is_nested = (earlier.ms is not None and later.ms is not None and earlier.ms < later.ms) or (
        earlier.ord is not None and later.ord is not None and earlier.ord < later.ord
    )
    if is_nested:
        return routes(history, Instants([earlier, later]), topic)
    one, other = (routes(history, Instants([instant]), topic) for instant in (earlier, later))
    return one.unionByName(other.withColumn("at", F.lit(1)))


def _differences(both: DataFrame) -> DataFrame:
    """A row per topic and group, and a row without a topic per group, each with the values at both instants.

    `queues_differ`: the queues of the topic, or of any topic of the group. `addresses_differ`: only for a group, so
    that its addresses are not repeated for each of its topics.
    """
    sides = [
        F.max_by(column, F.when(F.col("at") == at, F.lit(1))).alias(f"{column}_{name}")
        for at, name in enumerate(("before", "after"))
        for column in ("present", "cluster", "addresses", *_QUEUE_VALUES)
    ]
    per_topic = both.withColumn("present", F.lit(True)).groupBy("topic", "broker").agg(*sides)
    # Every row also counts towards the row of its group.
    rows = per_topic.withColumn("queues_differ", _differ("present", *_QUEUE_VALUES)).withColumn(
        "topic", F.explode(F.array("topic", F.lit(None)))
    )
    of_topic, of_group = F.col("topic").isNotNull(), F.col("topic").isNull()
    either = ("before", "after")
    found = rows.groupBy("broker", "topic").agg(
        F.max("queues_differ").alias("queues_differ"),
        *[F.max(f"{name}_{side}").alias(f"{name}_{side}") for side in either for name in ("present", "cluster")],
        *[
            F.max(F.when(of_topic, F.col(f"{name}_{side}"))).alias(f"{name}_{side}")
            for side in either
            for name in _QUEUE_VALUES
        ],
        # All topics of a group have the same addresses. Spark compares no maps, so there is no highest one.
        *[
            F.first(F.when(of_group, F.col(f"addresses_{side}")), ignorenulls=True).alias(f"addresses_{side}")
            for side in either
        ],
    )
    difference = (
        F.when(F.col("present_before").isNull(), F.lit("added"))
        .when(F.col("present_after").isNull(), F.lit("removed"))
        .otherwise(F.lit("changed"))
    )
    before, after = (F.sort_array(F.map_entries(f"addresses_{side}")) for side in either)
    return found.withColumns(
        {
            "difference": difference,
            "cluster": F.coalesce("cluster_after", "cluster_before"),
            "addresses_differ": ~before.eqNullSafe(after),
        }
    )


def _differ(*names: str) -> Column:
    differs = F.lit(False)
    for name in names:
        differs = differs | ~F.col(f"{name}_before").eqNullSafe(F.col(f"{name}_after"))
    return differs


def _newest_entries(between: DataFrame, is_mention: Column) -> DataFrame:
    """`group`, `item` (its topic, null for the group itself), `entry_count`, and the newest `entries`, by version.

    Only row 0 of an entry has its cause, actor and source.
    """
    of_entry = W.partitionBy("ord").orderBy("row").rowsBetween(W.unboundedPreceding, W.currentRow)
    fields = ("version", "kind", "cause", "actor", "source")
    subject = W.partitionBy("group", "item")
    entry = F.struct("ord", *fields)
    return (
        between.where(F.col("broker").isNotNull())
        .withColumns({name: F.first(name).over(of_entry) for name in ("cause", "actor", "source")})
        .where(is_mention)
        # An entry may have several items of one topic.
        .select(F.col("broker").alias("group"), F.col("topic").alias("item"), "ord", *fields)
        .distinct()
        .withColumns(
            {
                "rank": F.row_number().over(subject.orderBy(F.desc("ord"))),
                "entry_count": F.count("*").over(subject),
            }
        )
        .where(F.col("rank") <= MAX_ENTRIES)
        .groupBy("group", "item", "entry_count")
        .agg(F.sort_array(F.collect_list(entry)).alias("by_ord"))
        .select(
            "group",
            "item",
            "entry_count",
            F.transform("by_ord", lambda one: F.struct(*[one[field].alias(field) for field in fields])).alias(
                "entries"
            ),
        )
    )
