"""Computes answers: to a question over a window, to all of them for a report, and the route of one topic at an instant.
Each comes with the integrity of the history it rests on, or with what makes it uncertain.

`COMPUTATIONS` says what is computed for each question and level of the catalogue.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.parquet
from pyarrow import fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import StructType

from routebook_pipeline import schemas
from routebook_pipeline.answers.catalogue import EVERYTHING, QUESTIONS, SUBJECT, Question, RowSelection
from routebook_pipeline.answers.coverage import HistoryExtent, ResolvedWindow, is_ok
from routebook_pipeline.errors import NegativeAnswerError, UnreachableError
from routebook_pipeline.history import DEFAULTS, History, Instant, Thresholds, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.reading import complete_until, history_for
from routebook_pipeline.lake.tables import Lake, PinnedTable, Position
from routebook_pipeline.report.data import PLANNED, UNKNOWN, UNPLANNED, UP, Band, ReportData, Rows, worst_seats
from routebook_pipeline.schemas import INTEGRITY, ROUTE
from routebook_pipeline.source.stream import StreamEnd, StreamReader
from routebook_pipeline.times import iso
from routebook_pipeline.transforms import (
    anomalies,
    availability,
    capacity,
    churn,
    events,
    exposure,
    failovers,
    failures,
    heartbeat_gaps,
    integrity,
    routes,
    seat_states,
)
from routebook_pipeline.transforms.instants import is_visible_at
from routebook_pipeline.transforms.losses import Marks, marks_of, validity
from routebook_pipeline.transforms.timeline import Timeline, release

Row = dict[str, Any]


@dataclass(frozen=True)
class QuestionInput:
    """Everything that a computation needs."""

    history: History
    window: Window
    thresholds: Thresholds
    complete_until_ms: int
    selection: RowSelection = EVERYTHING

    @property
    def before(self) -> Instant:
        """The last instant before the window."""
        return Instant(ms=self.window.start_ms - 1)

    @property
    def end(self) -> Instant:
        """The last instant of the window."""
        return Instant(ms=self.window.end_ms - 1)


@dataclass(frozen=True)
class Computation:
    """How one (question, level) is computed, and the columns of its rows."""

    schema: StructType
    compute: Callable[[QuestionInput], DataFrame]


def _over_window(schema: StructType, compute: Callable[[History, Window, Thresholds], DataFrame]) -> Computation:
    return Computation(schema, lambda inputs: compute(inputs.history, inputs.window, inputs.thresholds))


def _events(inputs: QuestionInput) -> DataFrame:
    chosen = inputs.selection
    return events.events(
        inputs.history,
        inputs.window,
        inputs.thresholds,
        cluster=chosen.cluster,
        broker=chosen.broker,
        topic=chosen.topic,
        after_ord=chosen.after_ord,
    )


def _route_diff(inputs: QuestionInput) -> DataFrame:
    return routes.route_diff(inputs.history, inputs.before, inputs.end, inputs.selection.topic)


COMPUTATIONS: Final[dict[tuple[str, str], Computation]] = {
    ("route", "topic"): Computation(
        schemas.ROUTE, lambda inputs: routes.routes_at(inputs.history, inputs.end, inputs.selection.topic)
    ),
    ("route-diff", "topic"): Computation(schemas.ROUTE_DIFF, _route_diff),
    ("availability", "cluster"): _over_window(schemas.AVAILABILITY_BY_CLUSTER, availability.by_cluster),
    ("availability", "group"): _over_window(schemas.AVAILABILITY_BY_GROUP, availability.by_group),
    ("availability", "seat"): _over_window(schemas.AVAILABILITY_BY_SEAT, availability.by_seat),
    ("failures", "cluster"): _over_window(schemas.FAILURES, failures.by_cluster),
    ("failures", "seat"): _over_window(schemas.FAILURES, failures.by_seat),
    ("flaps", "seat"): _over_window(schemas.FLAPS, failures.flaps_by_seat),
    ("heartbeat-gaps", "cluster"): _over_window(schemas.HEARTBEAT_GAPS, heartbeat_gaps.by_cluster),
    ("heartbeat-gaps", "seat"): _over_window(schemas.HEARTBEAT_GAPS, heartbeat_gaps.by_seat),
    ("churn", "cluster"): _over_window(schemas.CHURN, churn.by_cluster),
    ("capacity", "cluster"): _over_window(schemas.CAPACITY, capacity.by_cluster),
    ("exposure", "cluster"): _over_window(schemas.EXPOSURE_BY_CLUSTER, exposure.by_cluster),
    ("exposure", "group"): _over_window(schemas.EXPOSURE_BY_GROUP, exposure.by_group),
    ("failovers", "each"): _over_window(schemas.FAILOVERS, failovers.each),
    ("failovers", "group"): _over_window(schemas.FAILOVERS_BY_GROUP, failovers.by_group),
    ("anomalies", "finding"): _over_window(schemas.ANOMALIES, anomalies.anomalies),
    ("integrity", "era"): Computation(
        schemas.INTEGRITY,
        lambda inputs: integrity.by_era(inputs.history, inputs.window, inputs.complete_until_ms),
    ),
    ("events", "event"): Computation(schemas.EVENTS, _events),
}


EVENTS_ORDER: Final = ("era", "version", "row")
_ORDER = ("rule", "subject", "topic", "cluster", "broker", "broker_id", "day", "at_ms", "era", "version", "from_ms")
"""The columns that an answer is sorted by, as far as it has them; a time line is sorted by its entries."""


@dataclass(frozen=True)
class AnswerContext:
    """What all questions of one command have in common."""

    lake: Lake
    extent: HistoryExtent
    resolved: ResolvedWindow
    thresholds: Thresholds = DEFAULTS
    log: Callable[[str], None] = lambda _: None
    """Receives messages about additional work, such as building a snapshot."""
    selection: RowSelection = EVERYTHING

    @property
    def since_ms(self) -> int:
        """Since when the history has entries: the start of the window, or the first entry of the lake."""
        start = self.resolved.window.start_ms
        return start if self.extent.since_ms is None else max(start, self.extent.since_ms)

    def inputs(self, history: History) -> QuestionInput:
        return QuestionInput(
            history, self.resolved.window, self.thresholds, self.extent.complete_until_ms, self.selection
        )


@dataclass(frozen=True)
class Answer:
    """The query for an answer. Spark computes nothing until `compute` collects the rows."""

    question: Question
    level: str
    context: AnswerContext
    schema: StructType
    rows: DataFrame
    integrity: DataFrame
    """Columns: `schemas.INTEGRITY`, over the same window."""
    release: Callable[[], None] = lambda: None
    """Gives back the memory that the query keeps."""


def answer(spark: SparkSession, context: AnswerContext, question: Question, level: str) -> Answer:
    inputs = context.inputs(_history(spark, context, [question]))
    computation = COMPUTATIONS[question.name, level]
    integrity_rows = COMPUTATIONS["integrity", "era"].compute(inputs)
    rows = select_rows(computation.compute(inputs), context.selection, question, level)
    return Answer(question, level, context, computation.schema, rows, integrity_rows, partial(release, inputs.history))


_SELECTED_BY_QUESTION: Final = {
    "events": ("cluster", "broker", "topic"),
    "route": ("topic",),
    "route-diff": ("topic",),
}
"""Columns by which a question selects its rows itself. Some of its rows have no value there and belong to the answer:
an entry about no broker concerns all of them, and a row of `route-diff` about a group has no topic.
"""


def select_rows(rows: DataFrame, selection: RowSelection, question: Question, level: str) -> DataFrame:
    for name, value in selection.names.items():
        if name in _SELECTED_BY_QUESTION.get(question.name, ()):
            continue
        rows = rows.where(F.col(name) == F.lit(value) if name in rows.columns else _subject_names(name, value))
    if selection.top is None:
        return rows
    by_name = [F.col(name) for name in _sort_columns(rows.columns)]
    order = [*_worst_first(question, level), *by_name] if is_worst_first(question, selection) else by_name
    return rows.orderBy(*order).limit(selection.top)


def _sort_columns(names: Collection[str]) -> list[str]:
    order = EVENTS_ORDER if set(EVENTS_ORDER) <= set(names) else _ORDER
    return [name for name in order if name in names]


def is_worst_first(question: Question, selection: RowSelection) -> bool:
    """Anomalies are always sorted in this way: a list of findings is read from the top."""
    return selection.worst_first or question.name == "anomalies"


def _worst_first(question: Question, level: str) -> list[Column]:
    return [
        F.expr(text.removeprefix("-")).desc_nulls_last() if text.startswith("-") else F.expr(text).asc_nulls_last()
        for text in question.worst[level]
    ]


def _subject_names(name: str, value: str) -> Column:
    """The subject of an anomaly is `cluster`, `cluster/broker` or `cluster/broker/id`."""
    at = 0 if name == "cluster" else 1
    return F.get(F.split(F.col(SUBJECT), "/"), F.lit(at)).eqNullSafe(F.lit(value))


@contextmanager
def question_inputs(
    spark: SparkSession, context: AnswerContext, questions: Collection[Question]
) -> Iterator[QuestionInput]:
    """One history for all these questions. What several of them need is kept in memory until the block ends: the seats'
    evidence, the queue items and the heartbeat gaps. The rows are not, since most questions read few of their columns.
    """
    history = _history(spark, context, questions)
    inputs = context.inputs(history)
    history.pulses.persist()
    Timeline.of(history, inputs.window, inputs.thresholds).persist()
    try:
        yield inputs
    finally:
        release(history)
        history.pulses.unpersist()


def _history(spark: SparkSession, context: AnswerContext, questions: Collection[Question]) -> History:
    return history_for(
        spark,
        context.lake,
        context.resolved.window,
        lookback_ms=max(question.lookback_ms(context.thresholds) for question in questions),
        pulses=any(question.pulses for question in questions),
        log=context.log,
    )


def to_table(rows: DataFrame, schema: StructType) -> pyarrow.Table:
    """The rows sorted by their names, with the columns in their documented order."""
    table = rows.select(*schema.names).toArrow()
    order = [(name, "ascending") for name in _sort_columns(schema.names)]
    return table.sort_by(order) if order else table


def to_rows(rows: DataFrame, schema: StructType) -> list[Row]:
    return plain_rows(to_table(rows, schema))


def plain_rows(table: pyarrow.Table) -> list[Row]:
    """The rows as dictionaries. Arrow gives maps as lists of pairs; they become dictionaries, too."""
    maps = {field.name for field in table.schema if pyarrow.types.is_map(field.type)}
    return [
        {name: dict(value) if name in maps and value is not None else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def failure_reason(name: str, rows: list[Row], thresholds: Thresholds) -> str:
    """Why `--fail` fails for this answer; empty if it does not."""
    match name:
        case "availability":
            missed = [
                row for row in rows if (share := row["availability"]) is not None and share < thresholds.objective
            ]
            return f"{len(missed)} of {len(rows)} miss the objective of {thresholds.objective}" if missed else ""
        case "anomalies":
            return f"{len(rows)} anomalies" if rows else ""
        case "integrity":
            return "" if is_ok(rows) else "the history is not ok"
        case _:
            return ""


@dataclass(frozen=True)
class ComputedAnswer:
    """The rows of an answer, and the integrity of the history they rest on."""

    answer: Answer
    table: pyarrow.Table
    integrity: list[Row]

    @property
    def rows(self) -> list[Row]:
        return plain_rows(self.table)

    @property
    def is_ok(self) -> bool:
        return is_ok(self.integrity)

    def metadata(self) -> dict[str, Any]:
        """Everything but the rows. Times are text here; in rows they are milliseconds, as in the lake."""
        context = self.answer.context
        resolved = context.resolved
        selection = context.selection.metadata
        return {
            "question": self.answer.question.name,
            "by": self.answer.level,
            **({"selected": selection} if selection else {}),
            "window": {"from": iso(resolved.window.start_ms), "to": iso(resolved.window.end_ms)},
            "since": iso(context.since_ms),
            "complete_until": iso(context.extent.complete_until_ms),
            "partial": resolved.is_partial,
            "ok": self.is_ok,
            "integrity": self.integrity,
        }


def compute(answer: Answer) -> ComputedAnswer:
    try:
        table = _sorted_table(answer)
        if answer.question.name == "integrity":
            return ComputedAnswer(answer, table, plain_rows(table))
        return ComputedAnswer(answer, table, to_rows(answer.integrity, INTEGRITY))
    finally:
        answer.release()


def _sorted_table(answer: Answer) -> pyarrow.Table:
    question, selection = answer.question, answer.context.selection
    if not is_worst_first(question, selection):
        return to_table(answer.rows, answer.schema)
    by_name = [F.col(name) for name in _sort_columns(answer.schema.names)]
    rows = answer.rows.orderBy(*_worst_first(question, answer.level), *by_name)
    return rows.select(*answer.schema.names).toArrow()


METADATA_KEY: Final = b"routebook"
"""The key under which a Parquet file holds the answer's metadata."""


def write_parquet(table: pyarrow.Table, metadata: dict[str, Any], out: str) -> None:
    """Writes one Parquet file to a path, or to a URL that Arrow supports (s3://, gs://, hdfs://)."""
    described = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    try:
        if "://" in out:
            store, path = fs.FileSystem.from_uri(out)
            pyarrow.parquet.write_table(described, path, filesystem=store)
        else:
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(described, out)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another place with --parquet.") from error


PARTS = {
    "integrity": ("integrity", "era"),
    "availability_by_cluster": ("availability", "cluster"),
    "availability_by_group": ("availability", "group"),
    "availability_by_seat": ("availability", "seat"),
    "failures_by_cluster": ("failures", "cluster"),
    "failures_by_seat": ("failures", "seat"),
    "flaps": ("flaps", "seat"),
    "heartbeat_gaps_by_cluster": ("heartbeat-gaps", "cluster"),
    "heartbeat_gaps_by_seat": ("heartbeat-gaps", "seat"),
    "exposure_by_cluster": ("exposure", "cluster"),
    "exposure_by_group": ("exposure", "group"),
    "capacity": ("capacity", "cluster"),
    "churn": ("churn", "cluster"),
    "failovers": ("failovers", "each"),
    "failovers_by_group": ("failovers", "group"),
    "anomalies": ("anomalies", "finding"),
}
"""Field of `ReportData` -> question and level."""


def collect_report_data(
    spark: SparkSession,
    context: AnswerContext,
    *,
    report_progress: Callable[[str], None] = lambda _: None,
    made_by: str = "",
) -> ReportData:
    resolved, extent = context.resolved, context.extent
    with question_inputs(spark, context, QUESTIONS.values()) as inputs:
        parts: dict[str, list[Row]] = {}
        for number, (name, key) in enumerate(PARTS.items(), 1):
            report_progress(f"computing {key[0]} by {key[1]} ({number} of {len(PARTS)})")
            parts[name] = to_rows(COMPUTATIONS[key].compute(inputs), COMPUTATIONS[key].schema)
        report_progress("collecting the charts' data")
        return ReportData(
            namespace=context.lake.namespace,
            window=resolved.window,
            complete_until_ms=extent.complete_until_ms,
            asked_until_ms=resolved.asked_until_ms,
            notes=(extent.store_problem,) if extent.store_problem else (),
            bands=_bands(spark, inputs, worst_seats(parts["availability_by_seat"])),
            gap_buckets=_gap_buckets(inputs),
            thresholds=context.thresholds,
            made_ms=extent.now_ms,
            made_by=made_by,
            **parts,  # type: ignore[arg-type]  # the keys of PARTS are the fields of rows
        )


def _bands(spark: SparkSession, inputs: QuestionInput, seats: Rows) -> list[Band]:
    if not seats:
        return []
    names = ("cluster", "broker", "broker_id")
    wanted = spark.createDataFrame(
        [tuple(seat[name] for name in names) for seat in seats], "cluster STRING, broker STRING, broker_id BIGINT"
    )
    found = (
        Timeline.of(inputs.history, inputs.window, inputs.thresholds)
        .intervals.where(
            (F.col("length_ms") > 0) & F.col("state").isin(seat_states.UP, seat_states.DOWN, seat_states.UNKNOWN)
        )
        .join(F.broadcast(wanted), list(names))
        .select(*names, "state", "unplanned", "from_ms", "to_ms")
        .orderBy(*names, "from_ms")
    )
    return [
        Band(row.cluster, row.broker, row.broker_id, _state(row.state, row.unplanned), row.from_ms, row.to_ms)
        for row in found.collect()
    ]


def _state(state: int, unplanned: bool | None) -> str:
    if state == seat_states.DOWN:
        return UNPLANNED if unplanned else PLANNED
    return UP if state == seat_states.UP else UNKNOWN


def _gap_buckets(inputs: QuestionInput) -> dict[int, int]:
    inside = heartbeat_gaps.inside(inputs.history, inputs.window)
    summed = inside.groupBy("bucket").agg(F.sum("count").alias("number"))
    return {row.bucket: row.number for row in summed.collect() if row.bucket is not None}


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
    rows = to_rows(routes.routes_at(history, instant, topic), ROUTE)
    return RouteAnswer(rows, routes.route_json(rows), _doubt(marks_of(history).visible_at(instant), extent))


def _doubt(marks: Marks, extent: HistoryExtent) -> Doubt | None:
    """From the losses and baselines before the instant. The rows of the answer do not show it: a topic without a route
    has none.
    """
    _, first = extent.first
    now = validity(marks)
    if first > 1 and now.baseline_begin is None:
        # The versions before the lake's first entry are missing, and no baseline has restated their effects yet.
        return Doubt(1, now.doubt_to_version or first - 1)
    return None if now.certain else _doubt_of_losses(marks)


def _doubt_of_losses(marks: Marks) -> Doubt:
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


def history_extent(lake: Lake, url_env: str | None) -> HistoryExtent:
    """How far the lake's history reaches.

    The lake is read before the store, so the store's answer is not older than the lake's state. Without a store
    (`url_env` is None, or the store does not answer) the history is complete until the last batch was read.
    """
    pinned = lake.changes.pin()
    newest, problem = _read_stream_end(url_env, lake.namespace)
    if newest is not None:
        problem = _lag(pinned, newest)
    position = pinned.position
    first_ord = pinned.files.lowest("first_ord")
    return HistoryExtent(
        complete_until_ms=complete_until(lake, newest),
        now_ms=time.time_ns() // 1_000_000 if newest is None else newest.now_ms,
        since_ms=pinned.files.lowest("first_ms"),
        newest=(0, 0) if position is None else astuple(position),
        first=HistoryExtent.first if first_ord is None else astuple(Position.of(first_ord)),
        store_problem=problem,
    )


def _read_stream_end(url_env: str | None, namespace: str) -> tuple[StreamEnd | None, str]:
    if url_env is None:
        return None, "no store is configured, so it is unknown whether there are later changes"
    try:
        with StreamReader(url_env, namespace) as stream:
            return stream.newest(), ""
    except UnreachableError:
        return None, "the store does not answer, so it is unknown whether there are later changes"


def _lag(pinned: PinnedTable, newest: StreamEnd) -> str:
    version = 0 if pinned.position is None else pinned.position.version
    return "" if version == newest.version else f"the lake is at version {version}, the store at {newest.version}"
