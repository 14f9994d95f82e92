"""From a question and a window to rows, with what they rest on."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from routebook_pipeline.answers.asking import WAYS, Asked
from routebook_pipeline.answers.catalogue import Question
from routebook_pipeline.answers.statement import is_ok
from routebook_pipeline.answers.windows import Reach, Settled
from routebook_pipeline.history import DEFAULTS, History, Thresholds
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.tables import Lake

Row = dict[str, Any]

_ORDER = ("rule", "subject", "topic", "cluster", "broker", "broker_id", "day", "at_ms", "era", "version", "from_ms")
"""Answers are sorted by those of these columns that they have."""


@dataclass(frozen=True)
class Basis:
    """What every question of one command is asked of."""

    lake: Lake
    reach: Reach
    settled: Settled
    thresholds: Thresholds = DEFAULTS
    say: Callable[[str], None] = lambda _: None
    """Told what was done besides: a snapshot built on the way."""

    @property
    def since_ms(self) -> int:
        """From when on there is evidence at all."""
        start = self.settled.window.start_ms
        return start if self.reach.since_ms is None else max(start, self.reach.since_ms)

    def asked(self, history: History) -> Asked:
        return Asked(history, self.settled.window, self.thresholds, self.reach.complete_until_ms)


@dataclass(frozen=True)
class Answer:
    """Nothing is computed before the rows are taken."""

    question: Question
    level: str
    basis: Basis
    shape: StructType
    rows: DataFrame
    integrity: DataFrame
    """As `shapes.INTEGRITY`, over the same window."""


def answer(spark: SparkSession, basis: Basis, question: Question, level: str) -> Answer:
    asked = basis.asked(_history(spark, basis, [question]))
    way = WAYS[question.name, level]
    return Answer(question, level, basis, way.shape, way.ask(asked), WAYS["integrity", "era"].ask(asked))


@contextmanager
def asking(spark: SparkSession, basis: Basis, questions: Collection[Question]) -> Iterator[Asked]:
    """One history for all of them, held in memory until the block ends: some twenty jobs read the same rows."""
    history = _history(spark, basis, questions)
    history.changes.persist()
    history.pulses.persist()
    try:
        yield basis.asked(history)
    finally:
        history.changes.unpersist()
        history.pulses.unpersist()


def _history(spark: SparkSession, basis: Basis, questions: Collection[Question]) -> History:
    return history_for(
        spark,
        basis.lake,
        basis.settled.window,
        lookback_ms=max(question.lookback_ms(basis.thresholds) for question in questions),
        pulses=any(question.pulses for question in questions),
        say=basis.say,
    )


def take(rows: DataFrame, shape: StructType) -> pyarrow.Table:
    """Sorted by what names a row, columns in their documented order."""
    table = rows.select(*shape.names).toArrow()
    order = [(name, "ascending") for name in _ORDER if name in shape.names]
    return table.sort_by(order) if order else table


def take_rows(rows: DataFrame, shape: StructType) -> list[Row]:
    return plain_rows(take(rows, shape))


def plain_rows(table: pyarrow.Table) -> list[Row]:
    """Maps as dictionaries: Arrow hands them out as pairs."""
    maps = {one.name for one in table.schema if pyarrow.types.is_map(one.type)}
    return [
        {name: dict(value) if name in maps and value is not None else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def is_no(name: str, rows: list[Row], thresholds: Thresholds) -> str:
    """Why the answer is no, for `--fail`; empty when it is not."""
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
