"""All requests but lookups wait here for their turn: bounded, fair between connections, in order within each.

No line takes it all: beyond a few requests one may have as much waiting as there is still room for others. So a peer
that asks without end is refused itself, and brokers keep their place.

Invariant: a line (one connection's requests) that has a request waiting, none being handled, and a peer that takes
answers, is in `_ready`, once.

Signs of life (`quick`) pass before the rest, and one runner is kept for them: a fleet that registers anew must
not make the service deaf for the brokers that are well.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from routebook.protocol.command import Request, RequestCode

QUICK: Final = frozenset({RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION})
REQUEST_OVERHEAD_BYTES: Final = 500
"""Of a request that waits, beside its body."""
LINE_MINIMUM: Final = 16
"""A line may have so many waiting, however little room there is."""


class Waiting(NamedTuple):
    request: Request
    since: float


class Line:
    """One connection's requests, in the order they came."""

    __slots__ = ("blocked", "busy", "handle", "queued_bytes", "ready", "waiting")

    def __init__(self, handle: Callable[[Request], Awaitable[None]]) -> None:
        self.handle = handle
        self.waiting: deque[Waiting] = deque()
        self.queued_bytes = 0
        self.busy = False
        self.ready = False
        self.blocked = False
        """Its peer does not take the answers it has asked for; it gets no others until it does."""


class WorkQueue:
    def __init__(self, *, runners: int, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._runners = runners
        self._ready: tuple[deque[Line], deque[Line]] = (deque(), deque())
        """Lines whose next request is a quick one, and the others."""
        self._free = runners
        self._slow_running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.length = 0
        self.queued_bytes = 0
        self.refused = 0

    def put(self, line: Line, request: Request) -> bool:
        """False: it is full, or the line has its share of it, and the request was not taken."""
        size = len(request.body) + REQUEST_OVERHEAD_BYTES
        share = max(LINE_MINIMUM, self._capacity - self.length)
        if self.length >= self._capacity or len(line.waiting) > share or self.queued_bytes + size > self._max_bytes:
            self.refused += 1
            return False
        line.waiting.append(Waiting(request, time.monotonic()))
        line.queued_bytes += size
        self.length += 1
        self.queued_bytes += size
        self._idle.clear()
        self._make_ready(line)
        return True

    def unblock(self, line: Line) -> None:
        """Also when the connection is gone: nobody waits for answers then, but what it said still counts. Brokers say
        that they leave, and close.
        """
        line.blocked = False
        self._make_ready(line)

    def slow_ms(self) -> int:
        """How long the request at the head has waited."""
        heads = [lines[0].waiting[0].since for lines in self._ready if lines]
        return int((time.monotonic() - min(heads)) * 1000) if heads else 0

    async def join(self) -> None:
        """Until nothing waits and nothing is being handled."""
        await self._idle.wait()

    def close(self) -> None:
        """What is being handled is cut off; what waits is left."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _make_ready(self, line: Line) -> None:
        if line.ready or line.busy or line.blocked or not line.waiting:
            return
        line.ready = True
        self._ready[line.waiting[0].request.code not in QUICK].append(line)
        self._start()

    def _start(self) -> None:
        while self._free and not self._closed and (taken := self._next_line()):
            line, quick = taken
            line.busy = True
            self._free -= 1
            self._slow_running += not quick
            task = asyncio.get_running_loop().create_task(self._run(line, quick))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next_line(self) -> tuple[Line, bool] | None:
        for lines, quick in zip(self._ready, (True, False), strict=True):
            # With one runner in all there is none to keep.
            while lines and (quick or self._slow_running < max(self._runners - 1, 1)):
                line = lines.popleft()
                line.ready = False
                if not line.blocked:
                    return line, quick
        return None

    async def _run(self, line: Line, quick: bool) -> None:
        request = line.waiting.popleft().request
        size = len(request.body) + REQUEST_OVERHEAD_BYTES
        self.length -= 1
        try:
            await line.handle(request)
        finally:
            line.queued_bytes -= size
            self.queued_bytes -= size
            line.busy = False
            self._free += 1
            self._slow_running -= not quick
            self._make_ready(line)
            self._start()
            if not self.length and self._free == self._runners:
                self._idle.set()
