"""A snapshot of a day: of everything before its midnight, the rows that any later question still depends on.

It is made of the snapshot before and what followed that, once the day is reached, and then it stands. Only an entry
that comes late, with a time before that midnight, makes it stale: its record says up to which `ord` the changes are in
it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.attempts import OvertakenError, attempt, put
from routebook_pipeline.lake.days import days_between, start_ms
from routebook_pipeline.lake.tables import Lake, Pinned
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms.snapshots import reduce

FILES: Final = 4


@dataclass(frozen=True)
class Snapshot:
    day: str
    pinned: Pinned

    @property
    def start_ms(self) -> int:
        return start_ms(self.day)

    def rows(self, spark: SparkSession, lake: Lake) -> DataFrame:
        return self.pinned.read(spark, lambda file: file.day == self.day).select(*lake.changes.columns.names)


def newest_before(lake: Lake, changes: Pinned, ms: int, last_ord: int | None = None) -> Snapshot | None:
    """The last one that holds nothing at or after `ms`, nor behind `last_ord`, among those that stand. An era that
    began later has entries at earlier times.
    """
    if not lake.snapshots.exists():
        return None
    pinned = lake.snapshots.pin()
    days: dict[str, int] = {}
    for file in pinned.files:
        if start_ms(file.day) <= ms:
            days[file.day] = max(days.get(file.day, 0), file.last_ord or 0)
    for day in sorted(days, reverse=True):
        if (last_ord is None or days[day] <= last_ord) and _stands(pinned, changes, day):
            return Snapshot(day, pinned)
    return None


def build(spark: SparkSession, lake: Lake, day: str, *, again: bool = False) -> bool:
    """False when it stands already, when nothing was before that day, or when the day is not reached yet."""
    table = lake.snapshots
    table.make()
    while True:
        changes, pinned = lake.changes.pin(), table.pin()
        place, midnight = changes.place, start_ms(day)
        before = [file for file in changes.files if file.first_ms is not None and file.first_ms < midnight]
        if place is None or not before or (changes.observed_ms or 0) < midnight:
            return False
        if not again and any(file.day == day for file in pinned.files) and _stands(pinned, changes, day):
            return False
        base = newest_before(lake, changes, midnight - 1)
        since_ms = base.start_ms if base else 0
        rows = changes.read(spark, lambda file: file in before and (file.last_ms or 0) >= since_ms)  # noqa: B023
        rows = rows.where(F.col("ms").between(since_ms, midnight - 1))
        if base is not None:
            rows = base.rows(spark, lake).unionByName(rows)
        try:
            with attempt(table) as made:
                made.write(reduce(rows).coalesce(FILES).withColumn(table.partition, F.lit(day)))
                put(pinned, made.added, records={_record(day): place.ord}, replaced_day=day)
        except OvertakenError:
            continue
        return True


def build_days(
    spark: SparkSession,
    lake: Lake,
    days: Iterable[str],
    *,
    again: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Those that were made."""
    made = []
    for day in days:
        if build(spark, lake, day, again=again):
            say(f"snapshot of {day}")
            made.append(day)
    return made


def closed_days(lake: Lake) -> list[str]:
    """The days that can have a snapshot: from the one after the first entry to the one we are in."""
    changes = lake.changes.pin()
    times = [file.first_ms for file in changes.files if file.first_ms is not None]
    if not times or changes.observed_ms is None:
        return []
    return days_between(day_of(min(times)), day_of(changes.observed_ms))[1:]


def drop_after(lake: Lake, ms: int) -> list[str]:
    """Removes the snapshots that hold what was at `ms`, since that has changed, and tells their days."""
    if not lake.snapshots.exists():
        return []
    for _ in range(5):
        pinned = lake.snapshots.pin()
        stale = [file for file in pinned.files if start_ms(file.day) > ms]
        days = sorted({file.day for file in stale})
        try:
            if stale:
                # -1: whoever builds one of them right now does not win against us.
                put(pinned, [], records={_record(day): -1 for day in days}, removed=stale)
        except OvertakenError:
            continue
        return days
    raise UnreachableError("The snapshots are being built by others. Run the command again.")


def _record(day: str) -> str:
    return f"snapshots/{day}"


def _stands(pinned: Pinned, changes: Pinned, day: str) -> bool:
    held, midnight = pinned.record(_record(day)), start_ms(day)
    if held is None:
        return False
    return not any((file.first_ms or 0) < midnight and (file.last_ord or 0) > held for file in changes.files)
