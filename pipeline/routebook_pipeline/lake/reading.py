"""What a question needs of the lake: the last snapshot before it, and what followed.

Everything is read from one version of each table, pinned here, and files are chosen by what the log says of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import DAY_MS, HOUR_MS, History, Instant, Window
from routebook_pipeline.lake.snapshots import Snapshot, build, newest_before
from routebook_pipeline.lake.snapshots import start_ms as day_start_ms
from routebook_pipeline.lake.tables import DataFile, Lake, PinnedTable
from routebook_pipeline.source.stream import StreamEnd
from routebook_pipeline.times import day_of

OLDEST_SNAPSHOT_MS: Final = 3 * DAY_MS
"""From an older one on, there is more to read than building a new one costs, once."""
PULSE_DELAY_MS: Final = HOUR_MS
"""A worker writes its pulse once a minute, but may have been held up."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class _Bounds:
    """In time: the first instant that matters, and the first that no longer does; or the last `ord`."""

    start_ms: int
    end_ms: int
    last_ord: int | None = None


def history_for(
    spark: SparkSession,
    lake: Lake,
    asked: Window | Instant,
    *,
    lookback_ms: int = 0,
    pulses: bool = False,
    log: Log = lambda _: None,
) -> History:
    """UnreachableError when there is no such lake, or nothing in it."""
    changes = filled(lake)
    bounds = _bounds(changes, asked, lookback_ms)
    snapshot = _snapshot(spark, lake, changes, bounds, log)
    since_ms = snapshot.start_ms if snapshot else 0
    follows = changes.read(spark, lambda file: _holds(file, since_ms, bounds.end_ms))
    follows = follows.where(F.col("ms").between(since_ms, bounds.end_ms - 1))
    if bounds.last_ord is not None:
        follows = follows.where(F.col("ord") <= bounds.last_ord)
    rows = snapshot.rows(spark, lake).unionByName(follows) if snapshot else follows
    return History(rows, _pulses(spark, lake, bounds, wanted=pulses))


def filled(lake: Lake) -> PinnedTable:
    """The changes, at their newest version."""
    changes = lake.changes.pin()
    if not changes.files:
        raise UnreachableError(
            f"The lake at {lake.folder.uri} is empty. `routebook pipeline ingest --once` fills it from the store."
        )
    return changes


def complete_until(lake: Lake, newest: StreamEnd | None) -> int:
    """Everything before this instant is in the lake. `newest`: what the store just said, if it answered."""
    changes = filled(lake)
    if newest is not None and changes.stream_position == (newest.id.ms, newest.version):
        return newest.now_ms
    return changes.observed_ms or 0


def _bounds(changes: PinnedTable, asked: Window | Instant, lookback_ms: int) -> _Bounds:
    if isinstance(asked, Window):
        return _Bounds(asked.start_ms - lookback_ms, max(asked.end_ms, asked.start_ms))
    if asked.ms is not None:
        return _Bounds(asked.ms + 1 - lookback_ms, asked.ms + 1)
    if asked.ord is None:
        raise ValueError("an instant has a time or a place")
    # Times rise with places: nothing up to that place is later than the files that begin at or before it.
    before = [file for file in changes.files if (file.first_ord or 0) <= asked.ord]
    holding = [file.first_ms or 0 for file in before if (file.last_ord or 0) >= asked.ord]
    last_ms = max((file.last_ms or 0 for file in before), default=0)
    start_ms = min(holding, default=last_ms)
    return _Bounds(start_ms - lookback_ms, last_ms + 1, asked.ord)


def _snapshot(spark: SparkSession, lake: Lake, changes: PinnedTable, bounds: _Bounds, log: Log) -> Snapshot | None:
    """At most three days before the start, unless there is not that much before it."""
    start_ms = bounds.start_ms
    found = newest_before(lake, changes, start_ms, bounds.last_ord)
    begin_ms = min(file.first_ms or 0 for file in changes.files)
    if start_ms - (found.start_ms if found else begin_ms) <= OLDEST_SNAPSHOT_MS:
        return found
    day = day_of(min(start_ms, changes.observed_ms or start_ms))
    if bounds.last_ord is not None and _begins_behind(changes, day, bounds.last_ord):
        return found
    since = f"the last one is of {found.day}" if found else f"everything since {day_of(begin_ms)} has to be read"
    log(f"there is no snapshot of {day}, {since}: it is built now (`routebook pipeline run snapshot` does it daily)")
    try:
        build(spark, lake, day)
    except Exception as error:
        # Who asks may have a right to read only. A file that is missing is named by what reads in its place.
        log(f"the snapshot could not be kept, so each question reads all that anew: {str(error).splitlines()[0]}")
    return newest_before(lake, changes, start_ms, bounds.last_ord)


def _begins_behind(changes: PinnedTable, day: str, last_ord: int) -> bool:
    """Whether a snapshot of that day would hold what is behind the place that was asked for."""
    midnight = day_start_ms(day)
    return any((file.first_ms or 0) < midnight and (file.last_ord or 0) > last_ord for file in changes.files)


def _pulses(spark: SparkSession, lake: Lake, bounds: _Bounds, *, wanted: bool) -> DataFrame:
    if not wanted or not lake.pulses.exists():
        return spark.createDataFrame([], lake.pulses.columns)
    first_ms = bounds.start_ms - PULSE_DELAY_MS
    rows = lake.pulses.pin().read(spark, lambda file: _holds(file, first_ms, bounds.end_ms))
    return rows.where(F.col("ms").between(first_ms, bounds.end_ms - 1))


def _holds(file: DataFile, start_ms: int, end_ms: int) -> bool:
    return (file.last_ms is None or file.last_ms >= start_ms) and (file.first_ms is None or file.first_ms < end_ms)
