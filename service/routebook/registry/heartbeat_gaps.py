"""How regularly brokers are heard: the gaps between signs of life, summed up here and written down once a minute.

They are too many to list, and their path must stay the cheapest: the script that takes a sign of life returns the gap,
and this worker counts it in a histogram of the seat. A worker that dies takes at most a minute of it along. A write
whose answer was lost is not repeated: a minute that is missing misleads less than one that counts twice.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from routebook.errors import StoreError
from routebook.settings.live import LiveSettings
from routebook.store.history import ROWS_BYTES, GapRow, append_heartbeat_gaps
from routebook.store.namespace import Namespace

_log = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
BUCKETS: Final = 128
UPPER_EDGES_MS: Final = tuple(100 * 2 ** (bucket / 8) for bucket in range(BUCKETS - 1))
"""Bucket k holds what is above the edge before and not above edge k; the last one everything above. Widths are 9 %."""

Seat = tuple[str, str, int]


def bucket_of(gap_ms: int) -> int:
    return bisect_left(UPPER_EDGES_MS, gap_ms)


class _Gaps:
    """Of one seat."""

    __slots__ = ("buckets", "max_ms")

    def __init__(self) -> None:
        self.max_ms = 0
        self.buckets: dict[int, int] = {}


class Pulse:
    def __init__(
        self, namespace: Namespace, live: LiveSettings, worker: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._namespace = namespace
        self._live = live
        self._worker = worker
        self._clock = clock
        self._seats: dict[Seat, _Gaps] = {}
        self._since = clock()

    def heard(self, cluster: str, broker: str, broker_id: int, gap_ms: int | None) -> None:
        """A sign of life was taken. None: it was the first one, so there is no gap."""
        if gap_ms is None:
            return
        seat = (cluster, broker, broker_id)
        gaps = self._seats.get(seat)
        if gaps is None:
            gaps = self._seats[seat] = _Gaps()
        bucket = bisect_left(UPPER_EDGES_MS, gap_ms)  # not through bucket_of: each call counts here
        gaps.buckets[bucket] = gaps.buckets.get(bucket, 0) + 1
        gaps.max_ms = max(gaps.max_ms, gap_ms)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.write_down()

    async def write_down(self) -> None:
        """All that was counted. While the store is out of touch it is kept: nothing is heard then."""
        if not self._namespace.client.is_connected:
            return
        seats, self._seats = self._seats, {}
        began, self._since = self._since, self._clock()
        try:
            for rows in _entries(seats):
                span_ms = int((self._clock() - began) * 1000)
                max_bytes = self._live.current.pulse_max_bytes
                await append_heartbeat_gaps(self._namespace, self._worker, rows, span_ms=span_ms, max_bytes=max_bytes)
        except StoreError as error:
            _log.warning("Heartbeat gaps of %d seats were not written down. %s", len(seats), error)


def _entries(seats: dict[Seat, _Gaps]) -> Iterator[list[str]]:
    rows: list[str] = []
    size = 0
    for (cluster, broker, broker_id), gaps in seats.items():
        row = GapRow(cluster, broker, broker_id, gaps.max_ms, gaps.buckets).pack()
        length = len(row.encode()) + 1
        if rows and size + length > ROWS_BYTES:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += length
    if rows:
        yield rows
