"""The queue of all requests but lookups: bounded, fair between connections, and in order within each.

No connection can take the whole queue. Beyond a few requests, a connection may have as many waiting as there is still
room for others. So a peer that sends without end is refused itself, and brokers get their requests into the queue.

Invariant: the queue of a connection that has a request waiting, none being handled, and a peer that reads its answers,
is in `_ready`, once.

Heartbeats (`HEARTBEATS`) are handled before other requests, and one runner is kept for them. While a whole fleet
registers again, the heartbeats of brokers that are well must not be delayed until the brokers expire.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from routebook.protocol.frame import Request, RequestCode

HEARTBEATS: Final = frozenset({RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION})
REQUEST_OVERHEAD_BYTES: Final = 500
"""Memory of a waiting request besides its body."""
GUARANTEED_REQUESTS: Final = 16
"""This many requests of a connection may wait, however little room there is."""


class Waiting(NamedTuple):
    request: Request
    since: float


class ConnectionQueue:
    """The requests of one connection, in the order they arrived."""

    __slots__ = ("blocked", "busy", "handle", "queued_bytes", "ready", "waiting")

    def __init__(self, handle: Callable[[Request], Awaitable[None]]) -> None:
        self.handle = handle
        self.waiting: deque[Waiting] = deque()
        self.queued_bytes = 0
        self.busy = False
        self.ready = False
        self.blocked = False
        """The peer does not read its answers, and gets no others until it does."""


class WorkQueue:
    def __init__(self, *, runners: int, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._runners = runners
        self._ready: tuple[deque[ConnectionQueue], deque[ConnectionQueue]] = (deque(), deque())
        """Those whose next request is a heartbeat, and the others."""
        self._free = runners
        self._others_running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.length = 0
        self.queued_bytes = 0
        self.refused = 0

    def put(self, queue: ConnectionQueue, request: Request) -> bool:
        """False if the request was not taken: the queue is full, or the connection has its share of it."""
        size = len(request.body) + REQUEST_OVERHEAD_BYTES
        share = max(GUARANTEED_REQUESTS, self._capacity - self.length)
        if self.length >= self._capacity or len(queue.waiting) > share or self.queued_bytes + size > self._max_bytes:
            self.refused += 1
            return False
        queue.waiting.append(Waiting(request, time.monotonic()))
        queue.queued_bytes += size
        self.length += 1
        self.queued_bytes += size
        self._idle.clear()
        self._make_ready(queue)
        return True

    def unblock(self, queue: ConnectionQueue) -> None:
        """Also called when the connection is closed. Its waiting requests are still handled, since brokers unregister
        and close the connection at once.
        """
        queue.blocked = False
        self._make_ready(queue)

    def slow_ms(self) -> int:
        """How long the oldest request has waited."""
        heads = [queues[0].waiting[0].since for queues in self._ready if queues]
        return int((time.monotonic() - min(heads)) * 1000) if heads else 0

    async def join(self) -> None:
        """Until no request waits or is being handled."""
        await self._idle.wait()

    def close(self) -> None:
        """Cancels the requests that are being handled; those that wait are not handled any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _make_ready(self, queue: ConnectionQueue) -> None:
        if queue.ready or queue.busy or queue.blocked or not queue.waiting:
            return
        queue.ready = True
        self._ready[queue.waiting[0].request.code not in HEARTBEATS].append(queue)
        self._start()

    def _start(self) -> None:
        while self._free and not self._closed and (taken := self._take_next()):
            queue, is_heartbeat = taken
            queue.busy = True
            self._free -= 1
            self._others_running += not is_heartbeat
            task = asyncio.get_running_loop().create_task(self._run(queue, is_heartbeat))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take_next(self) -> tuple[ConnectionQueue, bool] | None:
        for queues, is_heartbeat in zip(self._ready, (True, False), strict=True):
            # If there is only one runner, it cannot be kept for heartbeats.
            while queues and (is_heartbeat or self._others_running < max(self._runners - 1, 1)):
                queue = queues.popleft()
                queue.ready = False
                if not queue.blocked:
                    return queue, is_heartbeat
        return None

    async def _run(self, queue: ConnectionQueue, is_heartbeat: bool) -> None:
        request = queue.waiting.popleft().request
        size = len(request.body) + REQUEST_OVERHEAD_BYTES
        self.length -= 1
        try:
            await queue.handle(request)
        finally:
            queue.queued_bytes -= size
            self.queued_bytes -= size
            queue.busy = False
            self._free += 1
            self._others_running -= not is_heartbeat
            self._make_ready(queue)
            self._start()
            if not self.length and self._free == self._runners:
                self._idle.set()
