"""How regular the heartbeats of brokers are: the gaps between them, counted here and written to the store each minute.

The gaps are too many to store one by one, and the way of a heartbeat must stay the cheapest of all. So the script that
takes a heartbeat returns the gap, and this worker counts it in a histogram of the seat. The histograms are appended to
the stream `pulse`. When a worker dies, at most one minute of its counts is lost. An append without an answer is not
repeated: a missing minute misleads less than one that is counted twice.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from routebook.errors import StoreError
from routebook.model.broker import Seat
from routebook.settings.live import LiveSettings
from routebook.store.history import ROWS_BYTES, GapRow, append_heartbeat_gaps
from routebook.store.namespace import Namespace

_log = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
BUCKETS: Final = 128
UPPER_EDGES_MS: Final = tuple(100 * 2 ** (bucket / 8) for bucket in range(BUCKETS - 1))
"""Bucket k holds gaps above edge k - 1, up to and including edge k; the last bucket holds all longer ones. A bucket is
9 % wide.
"""


def bucket_of(gap_ms: int) -> int:
    return bisect_left(UPPER_EDGES_MS, gap_ms)


class _Histogram:
    """Gaps of one seat."""

    __slots__ = ("buckets", "max_ms")

    def __init__(self) -> None:
        self.max_ms = 0
        self.buckets: dict[int, int] = {}


class HeartbeatGaps:
    def __init__(
        self, namespace: Namespace, live: LiveSettings, worker: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._namespace = namespace
        self._live = live
        self._worker = worker
        self._clock = clock
        self._seats: dict[Seat, _Histogram] = {}
        self._since = clock()

    def record(self, seat: Seat, gap_ms: int | None) -> None:
        """Counts one heartbeat or registration. The first one of a seat has no gap (None)."""
        if gap_ms is None:
            return
        histogram = self._seats.get(seat)
        if histogram is None:
            histogram = self._seats[seat] = _Histogram()
        bucket = bisect_left(UPPER_EDGES_MS, gap_ms)  # not by bucket_of: at this place a function call is noticeable
        histogram.buckets[bucket] = histogram.buckets.get(bucket, 0) + 1
        histogram.max_ms = max(histogram.max_ms, gap_ms)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.flush()

    async def flush(self) -> None:
        """Appends all counts to the stream. Without contact to the store they are kept: no heartbeat arrives then."""
        if not self._namespace.client.is_connected:
            return
        seats, self._seats = self._seats, {}
        since, self._since = self._since, self._clock()
        try:
            for rows in _entries(seats):
                span_ms = int((self._clock() - since) * 1000)
                max_bytes = self._live.current.pulse_max_bytes
                await append_heartbeat_gaps(self._namespace, self._worker, rows, span_ms=span_ms, max_bytes=max_bytes)
        except StoreError as error:
            _log.warning("Heartbeat gaps of %d seats were not written. %s", len(seats), error)


def _entries(seats: dict[Seat, _Histogram]) -> Iterator[list[str]]:
    """Rows in batches that fit into one entry of the stream."""
    rows: list[str] = []
    size = 0
    for (cluster, broker, broker_id), histogram in seats.items():
        row = GapRow(cluster, broker, broker_id, histogram.max_ms, histogram.buckets).pack()
        length = len(row.encode()) + 1
        if rows and size + length > ROWS_BYTES:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += length
    if rows:
        yield rows
