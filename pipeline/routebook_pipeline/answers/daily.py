"""Answers stored by day, for dashboards and for tools other than Spark.

A day of an answer is replaced as a whole, in one commit. The same commit records what the day was computed from. A day
whose record shows that nothing has changed since is skipped, so a rerun is cheap. Late entries, imports, reparsed
entries and changed thresholds make the affected days stale, and the next run computes them again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import COMPUTATIONS, AnswerContext, QuestionInput, question_inputs
from routebook_pipeline.answers.coverage import HistoryExtent, ResolvedWindow
from routebook_pipeline.history import DAY_MS, DEFAULTS, Thresholds, Window
from routebook_pipeline.lake.snapshots import CumulativeStats
from routebook_pipeline.lake.tables import Lake, Table, all_records
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, write_attempt
from routebook_pipeline.times import day_of

_RECORD_SUFFIXES: Final = {
    "changes": "",
    "raw": "/raw",
    "pulses": "/pulses",
    "until_ms": "/until",
    "thresholds": "/thresholds",
}
"""Field of `Provenance` -> the suffix of its record's name."""
_FINGERPRINT_BYTES: Final = 6


@dataclass(frozen=True)
class Provenance:
    """What the stored answer of a day was computed from.

    The fields are numbers that the commit of the day leaves as records in the answer's table. Together they identify a
    state of the history and show which of two states is newer. A new entry raises `changes`; a reparse adds no entry,
    but lowers `raw`.
    """

    changes: int
    """The highest `ord` of the entries of that day and all days before."""
    raw: int
    """How many rows up to there could not be parsed and are stored as raw text."""
    pulses: int
    """The highest `ord` of the heartbeat gaps; 0 for answers that do not use them."""
    until_ms: int
    """Up to when the day was complete."""
    thresholds: int
    """A fingerprint of all thresholds."""

    def records(self, answer: str, day: str) -> dict[str, int]:
        return {f"{answer}/{day}{suffix}": getattr(self, field) for field, suffix in _RECORD_SUFFIXES.items()}

    @classmethod
    def recorded(cls, records: Mapping[str, int], answer: str, day: str) -> "Provenance | None":
        """None if the day was never computed, or by an older version of this code that recorded less."""
        found = {field: records.get(f"{answer}/{day}{suffix}") for field, suffix in _RECORD_SUFFIXES.items()}
        known = {field: number for field, number in found.items() if number is not None}
        return cls(**known) if len(known) == len(_RECORD_SUFFIXES) else None

    def covers(self, other: "Provenance") -> bool:
        """Whether this includes everything that the other includes."""
        return (
            (self.changes, -self.raw) >= (other.changes, -other.raw)
            and self.pulses >= other.pulses
            and self.until_ms >= other.until_ms
        )

    def satisfies(self, other: "Provenance") -> bool:
        """Whether an answer computed from this need not be computed again from the other."""
        return self.covers(other) and self.thresholds == other.thresholds

    def is_newer_than(self, other: "Provenance") -> bool:
        return self.covers(other) and not other.covers(self)


def fingerprint(thresholds: Thresholds) -> int:
    digest = hashlib.sha256(repr(astuple(thresholds)).encode()).digest()
    return int.from_bytes(digest[:_FINGERPRINT_BYTES], "big")


NOT_STORED: Final = frozenset({"route", "route-diff", "events"})
"""Every day would hold all routes, which is more than the history itself; and `route-at` answers from a snapshot. The
events are the history itself.
"""


@dataclass(frozen=True)
class StoredAnswer:
    """An answer that is stored by day: its question and level."""

    key: tuple[str, str]
    pulses: bool

    @property
    def name(self) -> str:
        return "-by-".join(self.key)

    def table(self, lake: Lake) -> Table:
        return lake.answers(self.name, COMPUTATIONS[self.key].schema)

    def records(self, lake: Lake) -> dict[str, int]:
        """The records of all its days, so that the table is opened only once."""
        table = self.table(lake)
        return all_records(table.pin()) if table.exists() else {}

    def provenance(self, available: Provenance) -> Provenance:
        """The part of what is available that this answer uses."""
        return available if self.pulses else replace(available, pulses=0)

    def is_up_to_date(self, records: Mapping[str, int], day: str, available: Provenance) -> bool:
        stored = Provenance.recorded(records, self.name, day)
        return stored is not None and stored.satisfies(self.provenance(available))


STORED_ANSWERS: Final = tuple(
    StoredAnswer((question.name, level), question.pulses)
    for question in QUESTIONS.values()
    if question.name not in NOT_STORED
    for level in question.levels
)


@dataclass(frozen=True)
class _Day:
    """A day whose answers are computed."""

    name: str
    context: AnswerContext
    available: Provenance
    recompute: bool


def days_between(start_ms: int, end_ms: int) -> Iterator[Window]:
    """The whole UTC days that overlap [start, end)."""
    first = start_ms // DAY_MS * DAY_MS if start_ms < end_ms else end_ms
    for day_ms in range(first, end_ms, DAY_MS):
        yield Window(day_ms, day_ms + DAY_MS)


def refresh(
    spark: SparkSession,
    lake: Lake,
    extent: HistoryExtent,
    days: Iterator[Window],
    *,
    thresholds: Thresholds = DEFAULTS,
    recompute: bool = False,
    answers: Sequence[StoredAnswer] = STORED_ANSWERS,
    report_progress: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> int:
    """Computes the answers of these days that are not up to date, and returns the number of (answer, day) pairs.

    `recompute`: also those that are up to date. `should_stop` is checked between answers.
    """
    changes = CumulativeStats(lake.changes.pin().files)
    pulses = CumulativeStats(lake.pulses.pin().files if lake.pulses.exists() else [])
    records = {stored: stored.records(lake) for stored in answers}
    computed = 0
    for window in days:
        until_ms = min(window.end_ms, extent.complete_until_ms)
        if until_ms <= window.start_ms:
            continue
        name = day_of(window.start_ms)
        available = Provenance(
            changes.newest(name), changes.raw(name), pulses.newest(name), until_ms, fingerprint(thresholds)
        )
        stale = [one for one in answers if recompute or not one.is_up_to_date(records[one], name, available)]
        if stale:
            resolved = ResolvedWindow(Window(window.start_ms, until_ms), until_ms)
            day = _Day(name, AnswerContext(lake, extent, resolved, thresholds), available, recompute)
            for number, (stored, is_ours) in enumerate(_compute_day(spark, day, stale), 1):
                computed += is_ours
                what = "computed" if is_ours else "another process has computed"
                report_progress(f"{name}: {what} {stored.name} ({number} of {len(stale)})")
                if should_stop():
                    return computed
    return computed


def _compute_day(spark: SparkSession, day: _Day, stale: list[StoredAnswer]) -> Iterator[tuple[StoredAnswer, bool]]:
    """Computes one answer after the other; False for an answer that another process has stored meanwhile."""
    with question_inputs(spark, day.context, [QUESTIONS[stored.key[0]] for stored in stale]) as inputs:
        for stored in stale:
            yield stored, _replace_day(inputs, stored, day)


def _replace_day(inputs: QuestionInput, stored: StoredAnswer, day: _Day) -> bool:
    """False if another process has stored this day meanwhile, from the same history or a newer state of it."""
    table = stored.table(day.context.lake)
    table.create()
    ours = stored.provenance(day.available)
    records = ours.records(stored.name, day.name)
    metadata = {"thresholds": json.dumps(asdict(inputs.thresholds))}
    rows = COMPUTATIONS[stored.key].compute(inputs).coalesce(1).withColumn(table.partition, F.lit(day.name))
    with write_attempt(table) as attempt:
        attempt.write(rows)
        while True:
            pinned = table.pin()
            present = Provenance.recorded(all_records(pinned), stored.name, day.name)
            if present is not None and (present.is_newer_than(ours) or (present.satisfies(ours) and not day.recompute)):
                attempt.remove()
                return False
            try:
                commit_files(pinned, attempt.added, records=records, metadata=metadata, replaced_day=day.name)
            except ConcurrentCommitError:
                # Another process has just committed a day of this answer: check again.
                continue
            return True
