"""Question 1 for one topic."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.computation import Row, to_rows
from routebook_pipeline.answers.coverage import HistoryExtent
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.schemas import ROUTE
from routebook_pipeline.transforms.instants import Points, sees
from routebook_pipeline.transforms.losses import standing_at
from routebook_pipeline.transforms.routes import route_json, routes_at


@dataclass(frozen=True)
class Doubt:
    """Between these versions is missing what the answer may depend on: they are the first and the last missing ones;
    at a fork, which has none, the last before and the first behind it.
    """

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"version {self.first} is missing"
        return f"the history between versions {self.first} and {self.last} is missing"


@dataclass(frozen=True)
class RouteAnswer:
    rows: list[Row]
    route: dict[str, Any] | None
    """As the service's JSON; None: no route."""
    doubt: Doubt | None
    """Also of an answer without a route: what is missing may have been its making."""


def route_at(
    spark: SparkSession,
    lake: Lake,
    extent: HistoryExtent,
    topic: str,
    *,
    instant: Instant,
    log: Callable[[str], None] = lambda _: None,
) -> RouteAnswer:
    """AnswerIsNoError for a version that the history does not have."""
    history = history_for(spark, lake, instant, log=log)
    if instant.ord is not None and extent.newest[0] > 0:
        _check_it_was(history.changes, instant, Position.of(instant.ord))
    rows = to_rows(routes_at(history, instant, topic), ROUTE)
    return RouteAnswer(rows, route_json(rows), _doubt(history.changes, instant, extent))


def _doubt(changes: DataFrame, instant: Instant, extent: HistoryExtent) -> Doubt | None:
    """Not taken from the rows of the answer: a topic without a route has none."""
    standing = standing_at(changes, Points([instant])).collect()[0]
    _, first = extent.first
    if first > 1 and standing.named_from is None:
        # What the service had written before the lake began, and no baseline has said again yet.
        return Doubt(1, first - 1 if standing.certain else standing.doubt_to_version)
    return None if standing.certain else Doubt(standing.doubt_from_version, standing.doubt_to_version)


def _check_it_was(changes: DataFrame, instant: Instant, inputs: Position) -> None:
    """Since a fork, a version may be behind the end of its era, or before its beginning."""
    said = (
        changes.where(sees(instant) & (F.col("row") == 0))
        .select("ord", F.struct("era", "version", "code", "to_version").alias("of"))
        .agg(F.max_by("of", "ord").alias("last"))
        .collect()[0]
    )
    last = said.last
    if last is not None and last.era == inputs.era and last.code != Kind.FORK:
        held = last.to_version if last.code == Kind.HOLE else last.version
        if held >= inputs.version:
            return
    before = "" if last is None else f": before it comes version {last.version} of era {last.era}"
    raise NegativeAnswerError(
        f"There never was a version {inputs.version} in era {inputs.era}{before}. `routebook pipeline run integrity` "
        "lists the eras of a window, each with its first and last version."
    )
