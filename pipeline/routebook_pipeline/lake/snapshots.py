"""UTC days, as the partitions spell them, and what lies in them.

A snapshot of a day: of everything before its midnight, the rows that any later question still depends on.

It is made of the snapshot before and what followed that, once the day is reached, and then it stands. Only two things
make it stale: an entry that comes late, with a time before that midnight, and one of before that can be read at last.
Its records tell both from the changes as they are: up to which `ord` they are in it, and how many of their rows were
kept as raw text. So whoever reads rows that were read again is never given a snapshot of before, whoever made it when.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.lake.tables import DataFile, Lake, PinnedTable, all_records
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, write_attempt
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms.snapshots import reduce

_EPOCH = date(1970, 1, 1)


def start_ms(day: str) -> int:
    """The midnight that the day begins with."""
    try:
        return (date.fromisoformat(day) - _EPOCH).days * 86_400_000
    except ValueError as error:
        raise WrongUsageError(f"{day!r} is no day. Allowed: days as 2026-11-18, in UTC.") from error


def names_of_days(first: str, last: str) -> list[str]:
    """Both included."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


class CumulativeStats:
    """What the log says of a table's files, day by day: of each day together with all before it."""

    def __init__(self, files: Iterable[DataFile]) -> None:
        self._days: list[str] = []
        self._told: list[tuple[int, int]] = []
        newest = raw = 0
        for day, its in groupby(sorted(files, key=lambda file: file.day), key=lambda file: file.day):
            for file in its:
                newest = max(newest, file.last_ord or 0)
                # Nobody counted: any of them may be.
                raw += file.rows - (file.readable_rows or 0)
            self._days.append(day)
            self._told.append((newest, raw))

    def newest(self, day: str) -> int:
        """`ord`; 0 when there was nothing."""
        return self._at(day)[0]

    def raw(self, day: str) -> int:
        return self._at(day)[1]

    def _at(self, day: str) -> tuple[int, int]:
        place = bisect_right(self._days, day)
        return self._told[place - 1] if place else (0, 0)


FILES: Final = 4


@dataclass(frozen=True)
class Snapshot:
    day: str
    pinned: PinnedTable

    @property
    def start_ms(self) -> int:
        return start_ms(self.day)

    def rows(self, spark: SparkSession, lake: Lake) -> DataFrame:
        return self.pinned.read(spark, lambda file: file.day == self.day).select(*lake.changes.columns.names)


def newest_before(lake: Lake, changes: PinnedTable, ms: int, last_ord: int | None = None) -> Snapshot | None:
    """The last one that holds nothing at or after `ms`, nor behind `last_ord`, among those that stand. An era that
    began later has entries at earlier times.
    """
    if not lake.snapshots.exists():
        return None
    pinned = lake.snapshots.pin()
    so_far = CumulativeStats(changes.files)
    days: dict[str, int] = {}
    for file in pinned.files:
        if start_ms(file.day) <= ms:
            days[file.day] = max(days.get(file.day, 0), file.last_ord or 0)
    for day in sorted(days, reverse=True):
        if (last_ord is None or days[day] <= last_ord) and _stands(day, pinned.record, so_far):
            return Snapshot(day, pinned)
    return None


def build(spark: SparkSession, lake: Lake, day: str, *, again: bool = False) -> bool:
    """False when it stands already, when nothing was before that day, or when the day is not reached yet."""
    table = lake.snapshots
    table.make()
    while True:
        # In this order: nobody's snapshot that we replace is made of later changes than ours.
        pinned, changes = table.pin(), lake.changes.pin()
        place, midnight, so_far = changes.position, start_ms(day), CumulativeStats(changes.files)
        before = [file for file in changes.files if file.first_ms is not None and file.first_ms < midnight]
        if place is None or not before or (changes.observed_ms or 0) < midnight:
            return False
        if not again and any(file.day == day for file in pinned.files) and _stands(day, pinned.record, so_far):
            return False
        base = newest_before(lake, changes, midnight - 1)
        since_ms = base.start_ms if base else 0
        rows = changes.read(spark, lambda file: file in before and (file.last_ms or 0) >= since_ms)  # noqa: B023
        rows = rows.where(F.col("ms").between(since_ms, midnight - 1))
        if base is not None:
            rows = base.rows(spark, lake).unionByName(rows)
        try:
            with write_attempt(table) as made:
                made.write(reduce(rows).coalesce(FILES).withColumn(table.partition, F.lit(day)))
                commit_files(pinned, made.added, records=_records(day, place.ord, so_far), replaced_day=day)
        except ConcurrentCommitError:
            continue
        return True


def build_days(
    spark: SparkSession,
    lake: Lake,
    days: Iterable[str],
    *,
    again: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Those that were made."""
    made = []
    for day in days if again else _missing(lake, days):
        if build(spark, lake, day, again=again):
            log(f"snapshot of {day}")
            made.append(day)
    return made


def _missing(lake: Lake, days: Iterable[str]) -> list[str]:
    """Those that can have a snapshot, and have none that stands: each table is opened once, however many days."""
    changes = lake.changes.pin()
    closed = set(_closed(changes))
    possible = [day for day in days if day in closed]
    if not possible or not lake.snapshots.exists():
        return possible
    pinned, so_far = lake.snapshots.pin(), CumulativeStats(changes.files)
    records, there = all_records(pinned), {file.day for file in pinned.files}
    return [day for day in possible if day not in there or not _stands(day, records.get, so_far)]


def closed_days(lake: Lake) -> list[str]:
    """The days that can have a snapshot: from the one after the first entry to the one we are in."""
    return _closed(lake.changes.pin())


def _closed(changes: PinnedTable) -> list[str]:
    times = [file.first_ms for file in changes.files if file.first_ms is not None]
    observed_ms = changes.observed_ms
    if not times or observed_ms is None:
        return []
    return names_of_days(day_of(min(times)), day_of(observed_ms))[1:]


def drop_after(lake: Lake, ms: int) -> list[str]:
    """Removes the snapshots that hold what was at `ms`, since that has changed, and tells their days. They stand no
    more either way; `vacuum` can delete their files now.
    """
    if not lake.snapshots.exists():
        return []
    for _ in range(5):
        pinned = lake.snapshots.pin()
        stale = [file for file in pinned.files if start_ms(file.day) > ms]
        try:
            if stale:
                commit_files(pinned, [], records={}, removed=stale)
        except ConcurrentCommitError:
            continue
        return sorted({file.day for file in stale})
    # Whoever is building them again replaces them all.
    return []


def _records(day: str, last_ord: int, so_far: CumulativeStats) -> dict[str, int]:
    return {f"snapshots/{day}": last_ord, f"snapshots/{day}/raw": so_far.raw(_day_before(day))}


def _stands(day: str, record: Callable[[str], int | None], so_far: CumulativeStats) -> bool:
    """Nothing that came since belongs into it, and of what is in it nothing can be read that could not then."""
    before = _day_before(day)
    held, raw = record(f"snapshots/{day}"), record(f"snapshots/{day}/raw")
    return held is not None and raw is not None and held >= so_far.newest(before) and raw <= so_far.raw(before)


def _day_before(day: str) -> str:
    """The last one that is in its snapshot."""
    return day_of(start_ms(day) - 1)
