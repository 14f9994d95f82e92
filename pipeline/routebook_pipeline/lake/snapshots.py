"""The snapshot of a day: the rows from before its midnight that any later question still depends on.

A snapshot is built from the one before and the changes after that. It stays valid unless it becomes stale, for which
there are two causes: an entry arrives late, with a time before that midnight; or an entry from before can be read only
now. Two records show both: the last `ord` that was committed when the snapshot was built, and how many of the rows it
was built from were kept as raw text. So a reader of reparsed rows never gets a snapshot from before the reparse.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DAY_MS
from routebook_pipeline.lake.tables import Files, Lake, PinnedTable, all_records
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, write_attempt
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms.snapshots import reduce

MAX_SNAPSHOT_AGE_MS: Final = 3 * DAY_MS
"""With an older snapshot, reading the changes after it takes longer than building a new one, once."""
FEW_ROWS: Final = 200_000
"""Up to this many changes are read even then. The snapshot of a large fleet has as many rows."""
FILES: Final = 4
TRIES: Final = 5

_EPOCH = date(1970, 1, 1)


def start_ms(day: str) -> int:
    """The midnight at which the day begins, in UTC."""
    try:
        return (date.fromisoformat(day) - _EPOCH).days * 86_400_000
    except ValueError as error:
        raise WrongUsageError(f"{day!r} is not a day. Allowed: days like 2026-11-18, in UTC.") from error


def days_from_to(first: str, last: str) -> list[str]:
    """Both days included."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


class CumulativeStats:
    """Statistics from a table's log: for each day, of its files and of those of all days before."""

    def __init__(self, files: Files | None) -> None:
        """None: the table does not exist yet."""
        of_days = [] if files is None else files.by_day()
        self._days = [one.day for one in of_days]
        self._stats: list[tuple[int, int]] = []
        newest = raw = 0
        for one in of_days:
            newest, raw = max(newest, one.last_ord), raw + one.raw
            self._stats.append((newest, raw))

    def newest(self, day: str) -> int:
        """The highest `ord`; 0 when there are no rows."""
        return self._at(day)[0]

    def raw(self, day: str) -> int:
        """Number of rows kept as raw text."""
        return self._at(day)[1]

    def _at(self, day: str) -> tuple[int, int]:
        index = bisect_right(self._days, day)
        return self._stats[index - 1] if index else (0, 0)


@dataclass(frozen=True)
class Snapshot:
    day: str
    pinned: PinnedTable

    @property
    def start_ms(self) -> int:
        return start_ms(self.day)

    def rows(self, spark: SparkSession, lake: Lake) -> DataFrame:
        return self.pinned.read(spark, self.pinned.files.where(compute.field("day") == self.day)).select(
            *lake.changes.columns.names
        )


def newest_before(lake: Lake, changes: PinnedTable, ms: int, last_ord: int | None = None) -> Snapshot | None:
    """The newest valid snapshot that has nothing at or after `ms`, and nothing after `last_ord`. (An era that began
    later has entries at earlier times.)
    """
    if not lake.snapshots.exists():
        return None
    pinned = lake.snapshots.pin()
    stats = CumulativeStats(changes.files)
    for one in reversed(pinned.files.by_day()):
        is_before = start_ms(one.day) <= ms and (last_ord is None or one.last_ord <= last_ord)
        if is_before and _is_valid(one.day, pinned.record, stats):
            return Snapshot(one.day, pinned)
    return None


def build(spark: SparkSession, lake: Lake, day: str, *, rebuild: bool = False) -> bool:
    """False when there is a valid snapshot already, when there are no changes before that day, or when the lake has not
    reached that day yet.
    """
    table = lake.snapshots
    table.create()
    while True:
        # In this order: a snapshot that we replace is never built from later changes than ours.
        pinned, changes = table.pin(), lake.changes.pin()
        position, midnight, stats = changes.position, start_ms(day), CumulativeStats(changes.files)
        before = changes.files.where(compute.field("first_ms") < midnight)
        if position is None or not before or (changes.observed_ms or 0) < midnight:
            return False
        exists = bool(pinned.files.where(compute.field("day") == day))
        if exists and not rebuild and _is_valid(day, pinned.record, stats):
            return False
        base = newest_before(lake, changes, midnight - 1)
        since_ms = base.start_ms if base else 0
        rows = changes.read(spark, before.where(compute.field("last_ms") >= since_ms))
        rows = rows.where(F.col("ms").between(since_ms, midnight - 1))
        if base is not None:
            rows = base.rows(spark, lake).unionByName(rows)
        try:
            with write_attempt(table) as attempt:
                attempt.write(reduce(rows).coalesce(FILES).withColumn(table.partition, F.lit(day)))
                records = _records(day, position.ord, stats)
                commit_files(pinned, attempt.added, records=records, replaced_days=[day])
        except ConcurrentCommitError:
            continue
        return True


def is_recent_enough(changes: PinnedTable, since_ms: int, ms: int) -> bool:
    """Whether a question about the time `ms` needs no later snapshot than that of `since_ms`."""
    return ms - since_ms <= MAX_SNAPSHOT_AGE_MS or changes.files.overlapping(since_ms, ms).rows <= FEW_ROWS


def build_days(
    spark: SparkSession,
    lake: Lake,
    days: Iterable[str],
    *,
    rebuild: bool = False,
    every_day: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Builds snapshots until each question about these days finds one that is recent enough. With `rebuild`, those that
    exist are built again. Returns the days built.

    `every_day`: also those that no question needs, because another one is recent enough.
    """
    built = []
    for day in _days_to_build(lake, days, rebuild=rebuild, every_day=every_day):
        if build(spark, lake, day, rebuild=rebuild):
            log(f"snapshot of {day}")
            built.append(day)
    return built


def _days_to_build(lake: Lake, days: Iterable[str], *, rebuild: bool, every_day: bool) -> list[str]:
    """Opens each table once, however many days are given."""
    changes = lake.changes.pin()
    closed = set(_closed_days(changes))
    possible = sorted(day for day in days if day in closed)
    valid: set[str] = set()
    if possible and lake.snapshots.exists():
        pinned, stats = lake.snapshots.pin(), CumulativeStats(changes.files)
        records, existing = all_records(pinned), pinned.files.days
        valid = {day for day in existing if _is_valid(day, records.get, stats)}
    chosen = []
    earlier = (start_ms(day) for day in valid if possible and day < possible[0])
    since_ms = max(earlier, default=changes.files.lowest("first_ms") or 0)
    for day in possible:
        # Questions about the end of the day must find one, too.
        is_due = every_day or not is_recent_enough(changes, since_ms, start_ms(day) + DAY_MS)
        if (day in valid and rebuild) or (day not in valid and is_due):
            chosen.append(day)
        if day in valid or is_due:
            since_ms = start_ms(day)
    return chosen


def closed_days(lake: Lake) -> list[str]:
    """The days that can have a snapshot: from the day after the first entry to the current day."""
    return _closed_days(lake.changes.pin())


def _closed_days(changes: PinnedTable) -> list[str]:
    first_ms, observed_ms = changes.files.lowest("first_ms"), changes.observed_ms
    if first_ms is None or observed_ms is None:
        return []
    return days_from_to(day_of(first_ms), day_of(observed_ms))[1:]


def drop_after(lake: Lake, ms: int) -> list[str]:
    """Removes the snapshots that depend on what was at `ms`, because that has changed, and returns their days. They are
    no longer valid in any case; removing them lets `vacuum` delete their files.
    """
    if not lake.snapshots.exists():
        return []
    for _ in range(TRIES):
        pinned = lake.snapshots.pin()
        stale = [file for file in pinned.files if start_ms(file.day) > ms]
        try:
            if stale:
                commit_files(pinned, [], records={}, removed=stale)
        except ConcurrentCommitError:
            continue
        return sorted({file.day for file in stale})
    # Another process is building them again, and replaces them all.
    return []


def _records(day: str, last_ord: int, stats: CumulativeStats) -> dict[str, int]:
    return {f"snapshots/{day}": last_ord, f"snapshots/{day}/raw": stats.raw(_day_before(day))}


def _is_valid(day: str, record: Callable[[str], int | None], stats: CumulativeStats) -> bool:
    """No later entry belongs into the snapshot, and none of the entries in it has become readable since."""
    before = _day_before(day)
    last_ord, raw = record(f"snapshots/{day}"), record(f"snapshots/{day}/raw")
    return last_ord is not None and raw is not None and last_ord >= stats.newest(before) and raw <= stats.raw(before)


def _day_before(day: str) -> str:
    """The last day in the snapshot of `day`."""
    return day_of(start_ms(day) - 1)
