"""What all connections of the port share, and the sweep that ends those that are idle, unfinished or stuck."""

import asyncio
import heapq
import logging
import time
from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import Final, Protocol

from routebook.observability.logs import PeerLog
from routebook.observability.metrics import Metrics, PortFigures
from routebook.protocol.command import SPOKEN_VERSION, HeaderEncoding
from routebook.protocol.frame import FrameLimits, PeerProtocolError
from routebook.protocol.headers import heads_of_success
from routebook.registry.registry import Registry
from routebook.registry.sessions import HeldConnection
from routebook.remoting.cluster_test import ClusterTestLookups
from routebook.remoting.lookups import Answering, Lookups, ShortWay, TimedOnce
from routebook.remoting.reply import Handler
from routebook.remoting.work_queue import WorkQueue
from routebook.settings import LiveSettings

_peers = PeerLog(logging.getLogger(__name__))

SWEEP_S: Final = 1.0
SPARED_AT_ONCE: Final = 16
SPARED_A_SWEEP: Final = 1_000
LOW_WATER_SHARE: Final = 4
"""Reading goes on when the output has fallen to this part of its high-water mark, as asyncio's own default."""


class PortConnection(HeldConnection, Protocol):
    """`connection.RemotingConnection`, as the port sees it."""

    closed: bool

    @property
    def is_closing(self) -> bool: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def unread_bytes(self) -> int: ...
    def has_been_quiet_since(self, now: float) -> float: ...
    def has_unfinished_frame_since(self, now: float) -> float: ...
    def has_been_stuck_since(self, now: float) -> float: ...
    def abort(self, reason: str) -> None: ...


class Port:
    """A sweep once a second looks at all connections, so that a request costs none of them a timer."""

    def __init__(
        self, registry: Registry, live: LiveSettings, handlers: Mapping[int, Handler], metrics: Metrics
    ) -> None:
        settings = live.current
        self.registry = registry
        self.handlers = handlers
        self.queue = WorkQueue(
            runners=settings.default_thread_pool_nums,
            capacity=settings.default_thread_pool_queue_capacity,
            max_bytes=settings.max_queued_bytes,
        )
        self.lookup_queue = WorkQueue(
            runners=settings.client_request_thread_pool_nums,
            capacity=settings.client_request_thread_pool_queue_capacity,
            max_bytes=settings.max_queued_bytes,
        )
        """Only for lookups that must ask elsewhere (`cluster_test`): all others are answered as they come."""
        self.lookups = ClusterTestLookups(registry, live) if settings.cluster_test else Lookups(registry, live)
        self.worker = registry.worker
        self.limits = FrameLimits(settings.max_frame_bytes, settings.max_header_bytes)
        self.encoding = HeaderEncoding[settings.serialize_type]
        head = heads_of_success(SPOKEN_VERSION, self.encoding, self.limits.max_frame_bytes)
        self._untimed = ShortWay(self.lookups, head)
        self.short_way: Answering = self._untimed
        self.high_water = settings.write_buffer_high_water_mark or settings.max_output_bytes
        self.low_water = min(
            settings.write_buffer_low_water_mark or self.high_water // LOW_WATER_SHARE, self.high_water
        )
        self.is_draining = False
        self.connections: set[PortConnection] = set()
        self.violations: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self._live = live
        self.metrics = metrics
        self._emptied = asyncio.Event()
        self._spare: list[PortConnection] = []
        """The quietest last."""

    def came(self, connection: PortConnection) -> None:
        self.connections.add(connection)
        self._emptied.clear()

    def went(self, connection: PortConnection) -> None:
        self.connections.discard(connection)
        self.registry.sessions.lost(connection)
        if not self.connections:
            self._emptied.set()

    def sample_next(self) -> None:
        """The next lookup takes its own time. No other one is any slower for it: what answers is exchanged."""
        self.short_way = TimedOnce(self._untimed, self._sampled)

    def _sampled(self, seconds: float) -> None:
        self.short_way = self._untimed
        self.metrics.lookup_time("remoting", seconds)

    def violated(self, peer: str, error: PeerProtocolError) -> None:
        self.violations[error.violation.value] += 1
        _peers.log(logging.INFO, "%s broke the protocol, and is cut off: %s", peer, error)

    def make_room(self) -> int:
        """Closes some that can be spared: without sessions, nobody waiting, the longest quiet of those the last sweep
        saw. A newcomer may be a broker that comes back.
        """
        closed = 0
        while self._spare and closed < SPARED_AT_ONCE:
            connection = self._spare.pop()
            if not connection.is_closing and not connection.is_busy and not self.registry.sessions.carries(connection):
                connection.close("room for others is needed")
                closed += 1
        self.cut["room"] += closed
        return closed

    async def wait_empty(self) -> None:
        if self.connections:
            await self._emptied.wait()

    async def wait_idle(self) -> None:
        await self.queue.join()
        await self.lookup_queue.join()

    async def close(self) -> None:
        self.queue.close()
        self.lookup_queue.close()
        await self.lookups.close()

    def figures(self) -> PortFigures:
        return PortFigures(
            found=self.lookups.found,
            not_found=self.lookups.not_found,
            not_ready=self.lookups.not_ready,
            waiting={"lookups": self.lookup_queue.length, "others": self.queue.length},
            slow_ms={"lookups": self.lookup_queue.slow_ms(), "others": self.queue.slow_ms()},
            refused=self.queue.refused + self.lookup_queue.refused,
            violations=self.violations,
            cut=self.cut,
        )

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._sweep_once(time.monotonic())

    def _sweep_once(self, now: float) -> None:
        settings = self._live.current
        idle_s = settings.server_channel_max_idle_time_seconds
        # A look comes up to one period late: counted in, so that the deadline holds.
        unfinished_s = max(settings.incomplete_frame_timeout_ms / 1000 - SWEEP_S, SWEEP_S)
        quiet: list[tuple[float, PortConnection]] = []
        for connection in tuple(self.connections):
            quiet_since = connection.has_been_quiet_since(now)
            if quiet_since < now and not connection.is_closing:
                quiet.append((quiet_since, connection))
            if connection.has_been_stuck_since(now) <= now - unfinished_s:
                self._cut(connection, "it does not take its answers")
            elif connection.has_unfinished_frame_since(now) <= now - unfinished_s:
                self._cut(connection, "it does not finish what it began")
            elif idle_s and quiet_since <= now - idle_s and not connection.is_closing:
                self.cut["idle"] += 1
                connection.close("idle")
        self._bound_unfinished(settings.max_queued_bytes)
        self._spare = [one for _, one in heapq.nsmallest(SPARED_A_SWEEP, quiet, key=itemgetter(0))][::-1]

    def _bound_unfinished(self, max_bytes: int) -> None:
        """A thousand frames of 16 MiB may be on their way at once. The largest go first: few peers send those."""
        unread = {one: one.unread_bytes for one in self.connections if one.unread_bytes}
        total = sum(unread.values())
        while total > max_bytes:
            largest = max(unread, key=unread.__getitem__)
            total -= unread.pop(largest)
            self._cut(largest, "frames that are not finished take too much memory")

    def _cut(self, connection: PortConnection, reason: str) -> None:
        self.cut[reason] += 1
        connection.abort(reason)
