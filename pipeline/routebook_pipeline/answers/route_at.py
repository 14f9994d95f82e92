"""The route of one topic at an instant or version, and how certain it is."""

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
from routebook_pipeline.transforms.instants import is_visible_at
from routebook_pipeline.transforms.losses import Marks, marks_of, validity
from routebook_pipeline.transforms.routes import route_json, routes_at


@dataclass(frozen=True)
class Doubt:
    """Changes that may affect the answer are missing between these two versions.

    For a hole they are the first and the last missing version. A fork has no missing versions: then they are the last
    version before it and the first one after it.
    """

    first: int
    last: int
    fork: tuple[int, int] | None = None
    """If there was a hole and a fork: the last version before the fork and the first one after it."""

    def __str__(self) -> str:
        missing = (
            f"version {self.first} is missing"
            if self.first == self.last
            else f"the history between versions {self.first} and {self.last} is missing"
        )
        if self.fork is None:
            return missing
        before, after = self.fork
        return f"{missing}, and another history began after version {before}, with version {after}"


@dataclass(frozen=True)
class RouteAnswer:
    rows: list[Row]
    route: dict[str, Any] | None
    """The route as the service's JSON; None if the topic had no route."""
    doubt: Doubt | None
    """Why the answer is uncertain. A missing route can be uncertain, too: the missing changes may have created it."""


def route_at(
    spark: SparkSession,
    lake: Lake,
    extent: HistoryExtent,
    topic: str,
    *,
    instant: Instant,
    log: Callable[[str], None] = lambda _: None,
) -> RouteAnswer:
    """Raises NegativeAnswerError if the instant is a version that the history does not have."""
    history = history_for(spark, lake, instant, log=log)
    if instant.ord is not None and extent.newest[0] > 0:
        _check_version_exists(history.changes, instant, Position.of(instant.ord))
    rows = to_rows(routes_at(history, instant, topic), ROUTE)
    return RouteAnswer(rows, route_json(rows), _doubt(marks_of(history).visible_at(instant), extent))


def _doubt(marks: Marks, extent: HistoryExtent) -> Doubt | None:
    """From the losses and baselines before the instant. The rows of the answer do not show it: a topic without a route
    has none.
    """
    _, first = extent.first
    now = validity(marks)
    if first > 1 and now.baseline_begin is None:
        # The versions before the lake's first entry are missing, and no baseline has restated their effects yet.
        return Doubt(1, now.doubt_to_version or first - 1)
    return None if now.certain else _unrepaired(marks)


def _unrepaired(marks: Marks) -> Doubt:
    """The holes and forks since the last complete baseline began; there is at least one."""
    holes: list[tuple[int, int]] = []
    forks: list[tuple[int, int]] = []
    for loss in marks.unrepaired:
        (forks if loss.code == Kind.FORK else holes).append((loss.from_version or 0, loss.to_version or 0))
    versions = holes or forks
    return Doubt(
        min(first for first, _ in versions),
        max(last for _, last in versions),
        fork=forks[-1] if holes and forks else None,
    )


def _check_version_exists(changes: DataFrame, instant: Instant, wanted: Position) -> None:
    """After a fork, a version can lie after the end of its era or before its beginning."""
    last = (
        changes.where(is_visible_at(instant) & (F.col("row") == 0))
        .select("ord", F.struct("era", "version", "code", "to_version").alias("entry"))
        .agg(F.max_by("entry", "ord").alias("last"))
        .collect()[0]
        .last
    )
    if last is not None and last.era == wanted.era and last.code != Kind.FORK:
        last_version = last.to_version if last.code == Kind.HOLE else last.version
        if last_version >= wanted.version:
            return
    before = "" if last is None else f"; the entry before it is version {last.version} of era {last.era}"
    raise NegativeAnswerError(
        f"Era {wanted.era} never had a version {wanted.version}{before}. `routebook pipeline run integrity` lists the "
        "eras of a window, each with its first and last version."
    )
