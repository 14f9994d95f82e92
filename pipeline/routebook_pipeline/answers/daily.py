"""Answers kept by day, for dashboards and whoever reads the tables with something else than Spark.

A day of an answer is replaced as a whole, in one commit, which also records what it was made from: the newest entry up
to the end of that day, and how much of the day was over. When both stand, nothing is done; so a rerun costs a look, and
an entry that comes late (or is imported) makes its day, and those behind it, again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from routebook_pipeline.answers.answering import Basis
from routebook_pipeline.answers.asking import WAYS, Asked
from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.windows import Reach, Settled
from routebook_pipeline.history import DAY_MS, DEFAULTS, Thresholds, Window
from routebook_pipeline.lake.attempts import OvertakenError, attempt, put
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.tables import Lake, Pinned, Table
from routebook_pipeline.times import day_of

NOT_KEPT: Final = frozenset({"route", "route-diff"})
"""The whole table a day: larger than the history it is made of, and `route-at` answers from a snapshot at once."""


@dataclass(frozen=True)
class Kept:
    """One answer and what it is made from."""

    key: tuple[str, str]
    pulses: bool

    @property
    def name(self) -> str:
        return "-by-".join(self.key)

    def table(self, lake: Lake) -> Table:
        return lake.answers(self.name, WAYS[self.key].shape)

    def records(self, day: str, sources: "Sources") -> dict[str, int]:
        """Name -> least number with which the day needs not be made again."""
        made_from = {"": sources.changes, "/until": sources.until_ms}
        if self.pulses:
            made_from["/pulses"] = sources.pulses
        return {f"{self.name}/{day}{part}": number for part, number in made_from.items()}


ALL: Final = tuple(
    Kept((question.name, level), question.pulses)
    for question in QUESTIONS.values()
    if question.name not in NOT_KEPT
    for level in question.levels
)


@dataclass(frozen=True)
class Sources:
    changes: int
    """The newest `ord` of entries of that day or before."""
    pulses: int
    until_ms: int
    """How much of the day was over."""


def days_between(start_ms: int, end_ms: int) -> Iterator[Window]:
    """The UTC days that have a part of [start, end), each whole."""
    first = start_ms // DAY_MS * DAY_MS
    for day_ms in range(first, end_ms, DAY_MS):
        yield Window(day_ms, day_ms + DAY_MS)


def refresh(
    spark: SparkSession,
    lake: Lake,
    reach: Reach,
    days: Iterator[Window],
    *,
    thresholds: Thresholds = DEFAULTS,
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    ended: Callable[[], bool] = lambda: False,
) -> int:
    """How many (answer, day) were made. `again`: also those that stand already. `ended`: asked between answers."""
    changes = lake.changes.pin()
    pulses = lake.pulses.pin() if lake.pulses.exists() else None
    made = 0
    for day in days:
        until_ms = min(day.end_ms, reach.complete_until_ms)
        if until_ms <= day.start_ms:
            continue
        name = day_of(day.start_ms)
        sources = Sources(_newest(changes, name), _newest(pulses, name), until_ms)
        wanted = [kept for kept in ALL if again or not _stands(kept, lake, name, sources)]
        if wanted:
            basis = Basis(lake, reach, Settled(Window(day.start_ms, until_ms), until_ms), thresholds)
            for number, kept in enumerate(_each(spark, basis, wanted, name, sources), 1):
                made += 1
                tell(f"{name}: made {kept.name} ({number} of {len(wanted)})")
                if ended():
                    return made
    return made


def _newest(pinned: Pinned | None, day: str) -> int:
    files = pinned.files if pinned is not None else []
    return max((file.last_ord or 0 for file in files if file.day <= day), default=0)


def _stands(kept: Kept, lake: Lake, day: str, sources: Sources) -> bool:
    table = kept.table(lake)
    if not table.exists():
        return False
    pinned = table.pin()
    return all((pinned.record(name) or -1) >= number for name, number in kept.records(day, sources).items())


def _each(spark: SparkSession, basis: Basis, wanted: list[Kept], day: str, sources: Sources) -> Iterator[Kept]:
    """Those that are made, one after the other."""
    lookback_ms = max(QUESTIONS[kept.key[0]].lookback_ms(basis.thresholds) for kept in wanted)
    pulses = any(kept.pulses for kept in wanted)
    history = history_for(
        spark, basis.lake, basis.settled.window, lookback_ms=lookback_ms, pulses=pulses, say=basis.say
    )
    # Some twenty jobs read the same rows.
    history.changes.persist()
    history.pulses.persist()
    try:
        for kept in wanted:
            _replace(basis.asked(history), kept, basis.lake, day, sources)
            yield kept
    finally:
        history.changes.unpersist()
        history.pulses.unpersist()


def _replace(asked: Asked, kept: Kept, lake: Lake, day: str, sources: Sources) -> None:
    table = kept.table(lake)
    table.make()
    rows = WAYS[kept.key].ask(asked).coalesce(1).withColumn(table.partition, F.lit(day))
    with attempt(table) as made:
        made.write(rows)
        while True:
            pinned = table.pin()
            try:
                put(pinned, made.added, records=kept.records(day, sources), replaced_day=day)
            except OvertakenError:
                # Somebody else has just made a day of this answer. Ours may be the older of two: look again.
                if _stands(kept, lake, day, sources):
                    made.remove()
                    return
                continue
            return
