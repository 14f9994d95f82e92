"""1 What did the service answer at an instant? And its answer as the service's JSON."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.history import History, Instant
from routebook_pipeline.shapes import ROUTE
from routebook_pipeline.transforms.groups import addresses, groups_at
from routebook_pipeline.transforms.marks import standing_at
from routebook_pipeline.transforms.points import Points
from routebook_pipeline.transforms.queues import is_named, last_at
from routebook_pipeline.transforms.shaping import shaped


def routes_at(history: History, instant: Instant, topic: str | None = None) -> DataFrame:
    return shaped(routes(history.changes, Points([instant]), topic), ROUTE)


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
