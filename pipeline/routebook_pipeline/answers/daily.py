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

_PARTS: Final = {
    "changes": "",
    "raw": "/raw",
    "pulses": "/pulses",
    "until_ms": "/until",
    "thresholds": "/thresholds",
}
"""Field -> what the name of its record ends with."""
_FINGERPRINT_BYTES: Final = 6


@dataclass(frozen=True)
class Provenance:
    changes: int
    """The newest `ord` of entries of that day or before."""
    raw: int
    """So many rows up to there are kept as raw text."""
    pulses: int
    """The newest `ord` of heartbeat gaps, where the answer rests on them; else 0."""
    until_ms: int
    """How much of the day was over."""
    thresholds: int
    """A fingerprint of all of them."""

    def records(self, answer: str, day: str) -> dict[str, int]:
        return {f"{answer}/{day}{end}": getattr(self, field) for field, end in _PARTS.items()}

    @classmethod
    def recorded(cls, records: Mapping[str, int], answer: str, day: str) -> "Provenance | None":
        """None: never made, or by a version that recorded less."""
        found = {field: records.get(f"{answer}/{day}{end}") for field, end in _PARTS.items()}
        known = {field: number for field, number in found.items() if number is not None}
        return cls(**known) if len(known) == len(_PARTS) else None

    def covers(self, other: "Provenance") -> bool:
        """Everything that the other was made from, or more."""
        return (
            (self.changes, -self.raw) >= (other.changes, -other.raw)
            and self.pulses >= other.pulses
            and self.until_ms >= other.until_ms
        )

    def stands_for(self, other: "Provenance") -> bool:
        """Made from this, an answer need not be made from the other."""
        return self.covers(other) and self.thresholds == other.thresholds

    def is_newer_than(self, other: "Provenance") -> bool:
        return self.covers(other) and not other.covers(self)


def fingerprint(thresholds: Thresholds) -> int:
    digest = hashlib.sha256(repr(astuple(thresholds)).encode()).digest()
    return int.from_bytes(digest[:_FINGERPRINT_BYTES], "big")


NOT_STORED: Final = frozenset({"route", "route-diff"})
"""The whole table a day: larger than the history it is made of, and `route-at` answers from a snapshot at once."""


@dataclass(frozen=True)
class StoredAnswer:
    """One answer that is kept."""

    key: tuple[str, str]
    pulses: bool

    @property
    def name(self) -> str:
        return "-by-".join(self.key)

    def table(self, lake: Lake) -> Table:
        return lake.answers(self.name, COMPUTATIONS[self.key].schema)

    def records(self, lake: Lake) -> dict[str, int]:
        """Of all its days: each table is opened once, however many days are looked at."""
        table = self.table(lake)
        return all_records(table.pin()) if table.exists() else {}

    def sources(self, of_day: Provenance) -> Provenance:
        return of_day if self.pulses else replace(of_day, pulses=0)

    def stands(self, records: Mapping[str, int], day: str, of_day: Provenance) -> bool:
        held = Provenance.recorded(records, self.name, day)
        return held is not None and held.stands_for(self.sources(of_day))


STORED_ANSWERS: Final = tuple(
    StoredAnswer((question.name, level), question.pulses)
    for question in QUESTIONS.values()
    if question.name not in NOT_STORED
    for level in question.levels
)


@dataclass(frozen=True)
class _Day:
    """What is made of a day."""

    name: str
    context: AnswerContext
    sources: Provenance
    recompute: bool


def days_between(start_ms: int, end_ms: int) -> Iterator[Window]:
    """The UTC days that have a part of [start, end), each whole."""
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
    """The number of (answer, day) pairs computed. `recompute`: also those that are up to date. `should_stop` is checked
    between answers.
    """
    changes = CumulativeStats(lake.changes.pin().files)
    pulses = CumulativeStats(lake.pulses.pin().files if lake.pulses.exists() else [])
    records = {kept: kept.records(lake) for kept in answers}
    made = 0
    for window in days:
        until_ms = min(window.end_ms, extent.complete_until_ms)
        if until_ms <= window.start_ms:
            continue
        name = day_of(window.start_ms)
        sources = Provenance(
            changes.newest(name), changes.raw(name), pulses.newest(name), until_ms, fingerprint(thresholds)
        )
        wanted = [kept for kept in answers if recompute or not kept.stands(records[kept], name, sources)]
        if wanted:
            context = AnswerContext(
                lake, extent, ResolvedWindow(Window(window.start_ms, until_ms), until_ms), thresholds
            )
            day = _Day(name, context, sources, recompute)
            for number, (kept, is_ours) in enumerate(_each(spark, day, wanted), 1):
                made += is_ours
                report_progress(
                    f"{name}: {'made' if is_ours else 'there is by now'} {kept.name} ({number} of {len(wanted)})"
                )
                if should_stop():
                    return made
    return made


def _each(spark: SparkSession, day: _Day, wanted: list[StoredAnswer]) -> Iterator[tuple[StoredAnswer, bool]]:
    """Those that are looked after, one after the other; whether it was made here, or somebody else was faster."""
    with question_inputs(spark, day.context, [QUESTIONS[kept.key[0]] for kept in wanted]) as inputs:
        for kept in wanted:
            yield kept, _replace(inputs, kept, day)


def _replace(inputs: QuestionInput, kept: StoredAnswer, day: _Day) -> bool:
    """False when somebody else made the day meanwhile, from the same or from more."""
    table = kept.table(day.context.lake)
    table.make()
    ours = kept.sources(day.sources)
    told = {"thresholds": json.dumps(asdict(inputs.thresholds))}
    rows = COMPUTATIONS[kept.key].compute(inputs).coalesce(1).withColumn(table.partition, F.lit(day.name))
    with write_attempt(table) as made:
        made.write(rows)
        while True:
            pinned = table.pin()
            held = Provenance.recorded(all_records(pinned), kept.name, day.name)
            if held is not None and (held.is_newer_than(ours) or (held.stands_for(ours) and not day.recompute)):
                made.remove()
                return False
            try:
                commit_files(
                    pinned, made.added, records=ours.records(kept.name, day.name), metadata=told, replaced_day=day.name
                )
            except ConcurrentCommitError:
                # Somebody else has just made a day of this answer: look again.
                continue
            return True
