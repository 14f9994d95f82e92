"""Reads the rows that a question needs: the last snapshot before its time, and the changes after the snapshot.

Everything is read from one pinned version of each table. Files are selected by the statistics in the log.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import History, Instant, Window
from routebook_pipeline.lake.snapshots import Snapshot, build, is_recent_enough, newest_before
from routebook_pipeline.lake.snapshots import start_ms as day_start_ms
from routebook_pipeline.lake.tables import Lake, PinnedTable
from routebook_pipeline.source.stream import StreamEnd
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms.heartbeat_gaps import PULSE_DELAY_MS

Log = Callable[[str], None]


@dataclass(frozen=True)
class _Bounds:
    """[start_ms, end_ms), and the last `ord` if the question names one."""

    start_ms: int
    end_ms: int
    last_ord: int | None = None


def history_for(
    spark: SparkSession,
    lake: Lake,
    when: Window | Instant,
    *,
    lookback_ms: int = 0,
    pulses: bool = False,
    log: Log = lambda _: None,
) -> History:
    """UnreachableError when the lake does not exist, or is empty."""
    changes = pin_changes(lake)
    bounds = _bounds(changes, when, lookback_ms)
    snapshot = _snapshot(spark, lake, changes, bounds, log)
    since_ms = snapshot.start_ms if snapshot else 0
    later = changes.read(spark, changes.files.overlapping(since_ms, bounds.end_ms))
    later = later.where(F.col("ms").between(since_ms, bounds.end_ms - 1))
    if bounds.last_ord is not None:
        later = later.where(F.col("ord") <= bounds.last_ord)
    rows = snapshot.rows(spark, lake).unionByName(later) if snapshot else later
    return History(rows, _pulses(spark, lake, bounds, wanted=pulses))


def pin_changes(lake: Lake) -> PinnedTable:
    """The changes at their newest version. UnreachableError when there are none."""
    changes = lake.changes.pin()
    if not changes.files:
        raise UnreachableError(
            f"The lake at {lake.folder.uri} is empty. `routebook pipeline ingest --once` fills it from the store."
        )
    return changes


def complete_until(lake: Lake, newest: StreamEnd | None) -> int:
    """The lake has everything before this time. `newest`: the end of the stream, if the store answered just now."""
    changes = pin_changes(lake)
    if newest is not None and changes.stream_position == (newest.id.ms, newest.version):
        return newest.now_ms
    return changes.observed_ms or 0


def _bounds(changes: PinnedTable, when: Window | Instant, lookback_ms: int) -> _Bounds:
    if isinstance(when, Window):
        return _Bounds(when.start_ms - lookback_ms, max(when.end_ms, when.start_ms))
    if when.ms is not None:
        return _Bounds(when.ms + 1 - lookback_ms, when.ms + 1)
    if when.ord is None:
        raise ValueError("an Instant needs ms or ord")
    # Times rise with ord: no row up to this ord is later than the files that begin at or before it.
    before = changes.files.where(compute.field("first_ord") <= when.ord)
    last_ms = before.highest("last_ms") or 0
    containing_ms = before.where(compute.field("last_ord") >= when.ord).lowest("first_ms")
    start_ms = last_ms if containing_ms is None else containing_ms
    return _Bounds(start_ms - lookback_ms, last_ms + 1, when.ord)


def _snapshot(spark: SparkSession, lake: Lake, changes: PinnedTable, bounds: _Bounds, log: Log) -> Snapshot | None:
    """A snapshot that is recent enough, built now if necessary. None when the history before the start is short, or
    when no snapshot can be built.
    """
    start_ms = bounds.start_ms
    found = newest_before(lake, changes, start_ms, bounds.last_ord)
    first_ms = changes.files.lowest("first_ms") or 0
    if is_recent_enough(changes, found.start_ms if found else first_ms, start_ms):
        return found
    day = day_of(min(start_ms, changes.observed_ms or start_ms))
    if bounds.last_ord is not None and _would_contain_later(changes, day, bounds.last_ord):
        return found
    since = f"the last one is of {found.day}" if found else f"everything since {day_of(first_ms)} would have to be read"
    log(f"there is no snapshot of {day}, {since}: building it now (`routebook pipeline run snapshot` does so daily)")
    try:
        build(spark, lake, day)
    except Exception as error:
        # The user may have permission to read only. If a file is missing, reading the changes instead will name it.
        log(f"the snapshot could not be stored, so each question reads everything: {str(error).splitlines()[0]}")
    return newest_before(lake, changes, start_ms, bounds.last_ord)


def _would_contain_later(changes: PinnedTable, day: str, last_ord: int) -> bool:
    """Whether a snapshot of that day would contain rows after `last_ord`."""
    midnight = day_start_ms(day)
    return bool(changes.files.where((compute.field("first_ms") < midnight) & (compute.field("last_ord") > last_ord)))


def _pulses(spark: SparkSession, lake: Lake, bounds: _Bounds, *, wanted: bool) -> DataFrame:
    if not wanted or not lake.pulses.exists():
        return spark.createDataFrame([], lake.pulses.columns)
    first_ms = bounds.start_ms - PULSE_DELAY_MS
    pulses = lake.pulses.pin()
    rows = pulses.read(spark, pulses.files.overlapping(first_ms, bounds.end_ms))
    return rows.where(F.col("ms").between(first_ms, bounds.end_ms - 1))
