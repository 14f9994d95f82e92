"""Answers stored by day, for dashboards and for tools other than Spark.

A day of an answer is replaced as a whole. The same commit records what the day was computed from. A day whose record
shows that nothing has changed since is skipped, so a rerun is cheap. Late entries, imports, reparsed entries and
changed thresholds make the affected days stale, and the next run computes them again.

Days that follow each other are computed together: one Spark job and one commit for each answer. Days with late entries,
holes or forks are computed alone (`Days` says why).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import COMPUTATIONS, AnswerContext, QuestionInput, question_inputs
from routebook_pipeline.answers.coverage import HistoryExtent, ResolvedWindow
from routebook_pipeline.history import DAY_MS, DAY_NUMBER, DEFAULTS, Days, Thresholds, Window
from routebook_pipeline.lake.snapshots import CumulativeStats
from routebook_pipeline.lake.tables import Files, Lake, Table, all_records
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms.churn import one_cluster_per_broker
from routebook_pipeline.transforms.losses import marks_of

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

    window: Window
    available: Provenance
    stale: tuple[StoredAnswer, ...]

    @property
    def name(self) -> str:
        return day_of(self.window.start_ms)


MAX_DAYS: Final = 100
"""Days that are computed together. Each adds a row per seat and per queue to what Spark sorts."""
_MOVES_WITH_ITS_BROKER: Final = "churn"


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
    files = lake.changes.pin().files
    changes = CumulativeStats(files)
    pulses = CumulativeStats(lake.pulses.pin().files if lake.pulses.exists() else None)
    records = {stored: stored.records(lake) for stored in answers}
    stale_days = []
    for window in days:
        until_ms = min(window.end_ms, extent.complete_until_ms)
        if until_ms <= window.start_ms:
            continue
        name = day_of(window.start_ms)
        available = Provenance(
            changes.newest(name), changes.raw(name), pulses.newest(name), until_ms, fingerprint(thresholds)
        )
        stale = tuple(one for one in answers if recompute or not one.is_up_to_date(records[one], name, available))
        if stale:
            stale_days.append(_Day(Window(window.start_ms, until_ms), available, stale))
    computed = 0
    refreshing = _Refresh(spark, lake, extent, thresholds, recompute)
    for together in _together(stale_days, files):
        for stored, done in refreshing.compute(together):
            computed += len(done)
            others = [day for day in together if stored in day.stale and day.name not in done]
            for day in (*done, *(day.name for day in others)):
                what = "computed" if day in done else "another process has computed"
                report_progress(f"{day}: {what} {stored.name} ({len(together)} days together)")
            if should_stop():
                return computed
    return computed


def _together(days: Sequence[_Day], files: Files) -> Iterator[list[_Day]]:
    """Days that follow each other, and whose rows have the same order by day and by `ord`."""
    highest, late = -1, set()
    for one in files.by_day():
        if one.first_ord <= highest:
            late.add(one.day)
        highest = max(highest, one.last_ord)
    group: list[_Day] = []
    for day in days:
        follows = bool(group) and day.window.start_ms == group[-1].window.start_ms + DAY_MS
        if group and (not follows or day.name in late or len(group) == MAX_DAYS):
            yield group
            group = []
        group.append(day)
    if group:
        yield group


@dataclass(frozen=True)
class _Refresh:
    spark: SparkSession
    lake: Lake
    extent: HistoryExtent
    thresholds: Thresholds
    recompute: bool

    def compute(self, days: Sequence[_Day]) -> Iterator[tuple[StoredAnswer, list[str]]]:
        """One answer after the other, with the days that this call has stored: another process may have stored the
        others meanwhile.
        """
        first, last = days[0].window, days[-1].window
        window = first if len(days) == 1 else Days(first.start_ms, last.end_ms)
        stale = [one for one in STORED_ANSWERS if any(one in day.stale for day in days)]
        context = AnswerContext(self.lake, self.extent, ResolvedWindow(window, window.end_ms), self.thresholds)
        with question_inputs(self.spark, context, [QUESTIONS[stored.key[0]] for stored in stale]) as inputs:
            if isinstance(window, Days):
                parts = list(_without_losses(days, {loss.ms // DAY_MS for loss in marks_of(inputs.history).losses}))
                if len(parts) > 1:
                    for part in parts:
                        yield from self.compute(part)
                    return
            for stored in stale:
                to_store = [day for day in days if stored in day.stale]
                if (
                    len(days) > 1
                    and stored.key[0] == _MOVES_WITH_ITS_BROKER
                    and not one_cluster_per_broker(inputs.history)
                ):
                    for day in to_store:
                        yield from self.compute([replace(day, stale=(stored,))])
                else:
                    yield stored, self._replace(inputs, stored, to_store)

    def _replace(self, inputs: QuestionInput, stored: StoredAnswer, days: Sequence[_Day]) -> list[str]:
        """The names of the days that were stored. A day is left out if another process has stored it meanwhile, from
        the same history or a newer state of it.
        """
        table = stored.table(self.lake)
        table.create()
        metadata = {"thresholds": json.dumps(asdict(inputs.thresholds))}
        with write_attempt(table) as attempt:
            attempt.write(_partitioned(COMPUTATIONS[stored.key].compute(inputs), table.partition, days))
            while True:
                pinned = table.pin()
                present = all_records(pinned)
                ours = [day.name for day in days if not self._is_overtaken(present, stored, day)]
                if not ours:
                    attempt.remove()
                    return []
                records = {
                    name: number
                    for day in days
                    if day.name in ours
                    for name, number in stored.provenance(day.available).records(stored.name, day.name).items()
                }
                added = [action for action in attempt.added if action.partition_values[table.partition] in ours]
                try:
                    commit_files(pinned, added, records=records, metadata=metadata, replaced_days=ours)
                except ConcurrentCommitError:
                    # Another process has just committed a day of this answer: check again.
                    continue
                return ours

    def _is_overtaken(self, records: Mapping[str, int], stored: StoredAnswer, day: _Day) -> bool:
        present, ours = Provenance.recorded(records, stored.name, day.name), stored.provenance(day.available)
        if present is None:
            return False
        return present.is_newer_than(ours) or (present.satisfies(ours) and not self.recompute)


def _without_losses(days: Sequence[_Day], lost: set[int]) -> Iterator[list[_Day]]:
    """A day with a hole or fork is computed alone."""
    part: list[_Day] = []
    for day in days:
        if day.window.start_ms // DAY_MS in lost:
            yield from filter(None, (part, [day]))
            part = []
        else:
            part.append(day)
    yield from filter(None, (part,))


def _partitioned(rows: DataFrame, partition: str, days: Sequence[_Day]) -> DataFrame:
    """The rows of these days, each in one file."""
    if DAY_NUMBER not in rows.columns:
        return rows.coalesce(1).withColumn(partition, F.lit(days[0].name))
    numbers = [day.window.start_ms // DAY_MS for day in days]
    named = rows.where(F.col(DAY_NUMBER).isin(numbers)).withColumn(partition, utc_day(F.col(DAY_NUMBER) * DAY_MS))
    return named.drop(DAY_NUMBER).repartition(partition)
