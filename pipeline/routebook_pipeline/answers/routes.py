"""Question 1 for one topic."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from routebook_pipeline.answers.answering import Row, take_rows
from routebook_pipeline.history import Instant
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.shapes import ROUTE
from routebook_pipeline.transforms.route import route_json, routes_at


@dataclass(frozen=True)
class Doubt:
    """Missing versions that the answer depends on."""

    first: int
    last: int


@dataclass(frozen=True)
class Found:
    rows: list[Row]
    route: dict[str, Any] | None
    """As the service's JSON; None: no route."""
    doubts: list[Doubt]


def route_at(
    spark: SparkSession, lake: Lake, topic: str, instant: Instant, say: Callable[[str], None] = lambda _: None
) -> Found:
    history = history_for(spark, lake, instant, say=say)
    rows = take_rows(routes_at(history, instant, topic), ROUTE)
    doubts = {(row["doubt_from_version"], row["doubt_to_version"]) for row in rows if row["certain"] is False}
    return Found(rows, route_json(rows), [Doubt(first, last) for first, last in sorted(doubts)])
