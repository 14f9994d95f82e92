"""Requests on their way through the port: the queue, what a handler is given, and the reply that it returns.

`WorkQueue` is the queue of all requests but lookups: bounded, fair between connections, and in order within each.

Requests wait in one of three lanes, and none waits behind another lane:

- `SIGNS_OF_LIFE`: heartbeats (904, 322) and registrations (103) until it is known whether they changed anything. Their
  cost is small and fixed. While a whole fleet registers again, or the other lanes are full, healthy brokers must not
  be delayed until they expire.
- `CHANGES`: registrations that have to be decoded. A handler moves its request here with `Turn.move_to`.
- `OTHERS`.

No connection can take a whole lane. Beyond a few requests, a connection may have as many waiting as there is still
room for others. So a peer that sends without end is refused itself, and brokers get their requests into the queue. The
first sign of life of a connection is never refused, since that bounds them by the number of connections.

Nothing is done for a peer that has left: its waiting requests are dropped, except deregistrations (104), because
brokers deregister and close the connection at once.

Invariant: the queue of a connection that has a request waiting, none being handled, and a peer that reads its answers,
is in the lane of its first request, once.

Before a request gets here, `RequestRates` counts it: too many a second are answered busy. Too many lookups are read
more slowly (`LookupRate`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from routebook.errors import BusyError, ForbiddenError, InvalidInputError, RefusedError, RoutebookError
from routebook.listeners.peers import REQUEST_BURST_S, Budget, Peer
from routebook.model.names import ANONYMOUS, Caller
from routebook.protocol.body_json import BodyError, ChecksumError
from routebook.protocol.frame import Ext, Request, RequestCode, ResponseCode, request_name
from routebook.protocol.headers import read_long, read_text
from routebook.registry.sessions import SessionConnection


class Lane(IntEnum):
    SIGNS_OF_LIFE = 0
    CHANGES = 1
    OTHERS = 2


SIGNS_OF_LIFE: Final = frozenset(
    {RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER}
)
REQUEST_OVERHEAD_BYTES: Final = 500
"""Memory of a waiting request besides its body."""
GUARANTEED_REQUESTS: Final = 16
"""This many requests of a connection may wait, however little room there is."""


def lane_of(code: int) -> Lane:
    """The lane in which a request begins."""
    return Lane.SIGNS_OF_LIFE if code in SIGNS_OF_LIFE else Lane.OTHERS


class Waiting(NamedTuple):
    request: Request
    since: float


class Mover(NamedTuple):
    """A request that is being handled and waits for a runner of another lane."""

    chosen: asyncio.Future[None]
    since: float


class ConnectionQueue:
    """The requests of one connection, in the order they arrived."""

    __slots__ = ("blocked", "busy", "handle", "peer_left", "queued_bytes", "ready", "task", "waiting")

    def __init__(self, handle: Callable[[Request, "Turn"], Awaitable[None]]) -> None:
        self.handle = handle
        self.waiting: deque[Waiting] = deque()
        self.queued_bytes = 0
        self.busy = False
        self.ready = False
        self.blocked = False
        """The peer does not read its answers, and gets no others until it does."""
        self.peer_left = False
        self.task: asyncio.Task[None] | None = None
        """Handles a request that is given up when the peer leaves."""

    @property
    def is_idle(self) -> bool:
        return not self.busy and not self.waiting


async def _nothing(_request: Request, _turn: "Turn") -> None:
    """Replaces the handler of a connection that is closed, so that its queue does not refer to it."""


class _Bytes:
    """Memory of the requests of one lane, or of several."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has_room(self, size: int) -> bool:
        """A request that waits alone may have any size that a frame may have."""
        return not self.used or self.used + size <= self.limit


class _LaneState:
    __slots__ = ("bytes", "free", "length", "ready")

    def __init__(self, runners: int, memory: _Bytes) -> None:
        self.bytes = memory
        self.free = runners
        self.length = 0
        """Number of requests that wait, whether their connection's turn has come or not."""
        self.ready: deque[ConnectionQueue | Mover] = deque()
        """Connections whose next request belongs to this lane, and requests that moved here."""


class Turn:
    """One request that is being handled, and the lane whose runner it holds."""

    __slots__ = ("_queue", "_size", "_work", "lane")

    def __init__(self, work: "WorkQueue", queue: ConnectionQueue, lane: Lane, size: int) -> None:
        self._work = work
        self._queue = queue
        self._size = size
        self.lane = lane

    def would_wait(self, lane: Lane) -> bool:
        """Whether `move_to` would have to wait for a runner, or would fail."""
        return self._work.is_busy(lane)

    async def move_to(self, lane: Lane) -> bool:
        """Waits for a runner of another lane. False, at once, if that lane is full. While the request waits, and until
        `keep`, it is given up when its peer leaves.
        """
        self._queue.task = asyncio.current_task()
        if self._queue.peer_left or not await self._work.move(self, lane, self._size):
            self.keep()
            return False
        return True

    def keep(self) -> None:
        """From now on the request is handled to its end, for example because it is about to write to the store."""
        self._queue.task = None


class WorkQueue:
    def __init__(self, *, runners: int, capacity: int, max_bytes: int) -> None:
        """Each lane has `runners` and `capacity` of its own. Signs of life may use a quarter of `max_bytes`, the other
        lanes together all of it.
        """
        self._capacity = capacity
        self._runners = runners
        others = _Bytes(max_bytes)
        self._lanes = {
            Lane.SIGNS_OF_LIFE: _LaneState(runners, _Bytes(max_bytes // 4)),
            Lane.CHANGES: _LaneState(runners, others),
            Lane.OTHERS: _LaneState(runners, others),
        }
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.refused = 0

    @property
    def length(self) -> int:
        return sum(state.length for state in self._lanes.values())

    @property
    def queued_bytes(self) -> int:
        return self._lanes[Lane.SIGNS_OF_LIFE].bytes.used + self._lanes[Lane.OTHERS].bytes.used

    def is_busy(self, lane: Lane) -> bool:
        """Whether a request that enters the lane now has to wait for a runner."""
        state = self._lanes[lane]
        return not state.free or bool(state.ready)

    def put(self, queue: ConnectionQueue, request: Request) -> bool:
        """False if the request was not taken: the lane is full, or the connection has its share of it."""
        state = self._lanes[lane := lane_of(request.code)]
        size = _size_of(request)
        if not (self._has_place(lane, queue) and state.bytes.has_room(size)):
            self.refused += 1
            return False
        queue.waiting.append(Waiting(request, time.monotonic()))
        queue.queued_bytes += size
        state.length += 1
        state.bytes.used += size
        self._idle.clear()
        self._make_ready(queue)
        return True

    def _has_place(self, lane: Lane, queue: ConnectionQueue) -> bool:
        length = self._lanes[lane].length
        if lane is Lane.SIGNS_OF_LIFE and not queue.waiting:
            return True
        return length < self._capacity and len(queue.waiting) <= max(GUARANTEED_REQUESTS, self._capacity - length)

    def unblock(self, queue: ConnectionQueue) -> None:
        queue.blocked = False
        self._make_ready(queue)

    def peer_left(self, queue: ConnectionQueue) -> None:
        """Drops the waiting requests of the connection, except deregistrations."""
        queue.peer_left = True
        if queue.ready:
            self._lanes[lane_of(queue.waiting[0].request.code)].ready.remove(queue)
            queue.ready = False
        kept: deque[Waiting] = deque()
        for waiting in queue.waiting:
            request = waiting.request
            if request.code == RequestCode.UNREGISTER_BROKER:
                kept.append(waiting)
            else:
                state = self._lanes[lane_of(request.code)]
                state.length -= 1
                state.bytes.used -= _size_of(request)
        queue.waiting = kept
        if queue.task is not None:
            queue.task.cancel()
        elif queue.is_idle:
            queue.handle = _nothing
        self.unblock(queue)
        self._note_idle()

    def slow_ms(self) -> int:
        """How long the oldest request has waited."""
        firsts = [state.ready[0] for state in self._lanes.values() if state.ready]
        heads = [first.since if isinstance(first, Mover) else first.waiting[0].since for first in firsts]
        return int((time.monotonic() - min(heads)) * 1000) if heads else 0

    async def join(self) -> None:
        """Until no request waits or is being handled."""
        await self._idle.wait()

    def close(self) -> None:
        """Cancels the requests that are being handled; those that wait are not handled any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def move(self, turn: Turn, lane: Lane, size: int) -> bool:
        state = self._lanes[lane]
        if state.length >= self._capacity or not state.bytes.has_room(size):
            self.refused += 1
            return False
        before = self._lanes[turn.lane]
        before.bytes.used -= size
        state.bytes.used += size
        must_wait = self.is_busy(lane)
        self._release_runner(turn.lane)
        turn.lane = lane
        if not must_wait:
            state.free -= 1
            return True
        mover = Mover(asyncio.get_running_loop().create_future(), time.monotonic())
        state.ready.append(mover)
        state.length += 1
        try:
            await mover.chosen
        except asyncio.CancelledError:
            if mover.chosen.cancelled():
                # It was not chosen, so it holds no runner; the end of the request will release one.
                with suppress(ValueError):
                    state.ready.remove(mover)
                state.free -= 1
            raise
        finally:
            state.length -= 1
        return True

    def _make_ready(self, queue: ConnectionQueue) -> None:
        if queue.ready or queue.busy or queue.blocked or not queue.waiting:
            return
        queue.ready = True
        lane = lane_of(queue.waiting[0].request.code)
        self._lanes[lane].ready.append(queue)
        self._start(lane)

    def _start(self, lane: Lane) -> None:
        state = self._lanes[lane]
        while state.free and state.ready and not self._closed:
            first = state.ready.popleft()
            if isinstance(first, ConnectionQueue):
                first.ready = False
                if not first.blocked:
                    self._start_first_request(first, lane)
            elif not first.chosen.done():
                state.free -= 1
                first.chosen.set_result(None)

    def _start_first_request(self, queue: ConnectionQueue, lane: Lane) -> None:
        state = self._lanes[lane]
        request = queue.waiting.popleft().request
        state.length -= 1
        state.free -= 1
        queue.busy = True
        self._running += 1
        turn = Turn(self, queue, lane, _size_of(request))
        task = asyncio.get_running_loop().create_task(self._run(queue, request, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, queue: ConnectionQueue, request: Request, turn: Turn) -> None:
        size = _size_of(request)
        try:
            await queue.handle(request, turn)
        finally:
            turn.keep()
            queue.queued_bytes -= size
            self._lanes[turn.lane].bytes.used -= size
            self._running -= 1
            queue.busy = False
            if queue.peer_left and not queue.waiting:
                queue.handle = _nothing
            self._make_ready(queue)
            self._release_runner(turn.lane)
            self._note_idle()

    def _release_runner(self, lane: Lane) -> None:
        self._lanes[lane].free += 1
        self._start(lane)

    def _note_idle(self) -> None:
        if not self._running and not self.length:
            self._idle.set()


def _size_of(request: Request) -> int:
    return len(request.body) + REQUEST_OVERHEAD_BYTES


LONGEST_PAUSE_S: Final = 1.0
"""After this pause the budget of the address is checked again, since its other connections spend it too."""


class RequestRates:
    """Requests other than lookups, of one address and of all. Registrations and heartbeats are never refused."""

    def __init__(self, per_second: int) -> None:
        self._of_all_peers = Budget(per_second, per_second * REQUEST_BURST_S)

    def charge(self, peer: Peer, code: int) -> tuple[str, float] | None:
        """The setting that is exceeded, and its value, if there have been too many."""
        now = time.monotonic()
        if not peer.requests.take(1, now) and code not in SIGNS_OF_LIFE:
            return "max_requests_per_second_per_address", peer.requests.per_second
        if not self._of_all_peers.take(1, now) and code not in SIGNS_OF_LIFE:
            return "max_requests_per_second", self._of_all_peers.per_second
        return None


class LookupRate:
    """The lookups of one connection, charged to its address once for each batch."""

    def __init__(self, budget: Budget, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Pauses reading until the budget of the address covers the answered lookups."""
        self._budget = budget
        self._pause = pause
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None

    def charge(self, count: int) -> None:
        now = time.monotonic()
        self._budget.charge(count, now)
        if self._timer is None and self._budget.wait_s(now):
            self._pause()
            self._look_again()

    def close(self) -> None:
        self._pause = self._resume = _do_nothing
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        wait_s = self._budget.wait_s(time.monotonic())
        if wait_s:
            self._timer = asyncio.get_running_loop().call_later(min(wait_s, LONGEST_PAUSE_S), self._look_again)
        else:
            self._timer = None
            self._resume()


def _do_nothing() -> None:
    pass


def lookup_rate(peer: Peer, pause: Callable[[], None], resume: Callable[[], None]) -> LookupRate | None:
    """None without a limit, so that a batch of lookups costs nothing more."""
    return LookupRate(peer.lookups, pause, resume) if peer.lookups.per_second else None


REGISTER_FAILED = "register broker failed"
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"
GO_AWAY = "please go away"


class Reply(NamedTuple):
    code: int = ResponseCode.SUCCESS
    ext: Ext | None = None
    """{} for an answer with a typed header that has no fields."""
    remark: str | None = None
    body: bytes = b""


def reply_to_error(error: RoutebookError) -> Reply:
    """Code 16 for a missing permission. Code 1 for every other error, after which a peer keeps what it has. RocketMQ
    sends the text of a Java exception, which peers only log.
    """
    # RocketMQ has begun its answer to a registration when it finds these two errors: hence the empty typed header.
    if isinstance(error, RefusedError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=REGISTER_FAILED)
    if isinstance(error, ChecksumError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=error.remark)
    if isinstance(error, BusyError):
        return Reply(ResponseCode.SYSTEM_BUSY, remark=str(error))
    if isinstance(error, BodyError):
        return Reply(ResponseCode.SYSTEM_ERROR, remark=error.remark)
    if isinstance(error, ForbiddenError):
        return Reply(ResponseCode.NO_PERMISSION, remark=str(error))
    return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))


def not_supported(code: int) -> Reply:
    """The leading blank is RocketMQ's."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported")


def overloaded() -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, remark=OVERLOADED)


def too_many_requests(setting: str, limit: float) -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, remark=f"[OVERLOAD]{setting} allows {limit:g} requests a second")


def go_away() -> Reply:
    return Reply(ResponseCode.GO_AWAY, remark=GO_AWAY)


CHANGING: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""Requests that change something; their refusals are audited."""

_OBJECT_FIELDS: Final = ("clusterName", "brokerName", "brokerId", "brokerAddr", "topic", "namespace", "key")


def object_of(request: Request) -> str:
    """What a request is about, as the audit shows it: names from the header, and never the value of a key."""
    named = ((name, read_text(request.ext, name)) for name in _OBJECT_FIELDS)
    return " ".join(f"{name}={text[:100]}" for name, text in named if text)


def anonymous_caller(request: Request, peer: str, worker: str) -> Caller:
    """The sender of a request, as long as no identity is proven."""
    return Caller(ANONYMOUS, peer, worker=worker, port="remoting", verb=request_name(request.code))


@dataclass(frozen=True, slots=True)
class RequestContext:
    request: Request
    connection: SessionConnection
    caller: Caller
    answer_now: Callable[[Reply], None]
    """For a handler that answers before it has finished; it then returns None."""
    turn: Turn
    costs: Peer
    """What the address of the peer has cost."""

    def text(self, name: str) -> str | None:
        return read_text(self.request.ext, name)

    def body_within(self, limit_bytes: int) -> bytes:
        """For bodies that are parsed in one go. No real peer's is longer, and a longer one could delay lookups."""
        body = self.request.body
        if len(body) > limit_bytes:
            raise InvalidInputError("body", f"{len(body)} bytes", f"at most {limit_bytes} bytes for this request")
        return body

    def required(self, name: str) -> str:
        """Where RocketMQ would fail on a null pointer, or store something without a name."""
        text = self.text(name)
        if not text:
            raise InvalidInputError(name, text, "a text; the header has none")
        return text

    def required_long(self, name: str) -> int:
        number = read_long(self.request.ext, name, None)
        if number is None:
            raise InvalidInputError(name, self.text(name), "a whole number of 64 bits")
        return number


Handler = Callable[[RequestContext], Awaitable[Reply | None]]
