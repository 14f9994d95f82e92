"""Links: connections to the store that many callers share.

Invariant of a link: the store answers the commands of a connection in their order, so the next reply belongs to the
oldest waiting request, even if its caller has given up. A caller that was cancelled or ran out of time leaves its
request in the queue, and the reply is read and dropped. No command is cancelled in flight, and no caller can receive
another caller's reply.

Why links are shared, instead of one call at a time as in redis-py's pool: with a store that is slow by half a second, 8
connections would serve 16 calls per second while the others run out of time. A shared connection also writes and reads
many commands at once, which costs less.

A link set has the links to one primary. Heartbeats must never wait behind the load of a whole table, so calls share
some links, long pipelines use another one, and each read that blocks in the store has one of its own.

`translate_reply` says what an error reply of the store means for Routebook, and what an operator should do about it.
Redis before 7 wraps errors that occur inside a script ("ERR Error running script …: -OOM …"); both forms are read.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from routebook.errors import StoreError, StoreRefusalError, StoreUnavailableError, StoreUnsuitableError
from routebook.store.connection.url import Address

_IN_SCRIPT = re.compile(r"-(OOM|READONLY|MISCONF|NOPERM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b ?(.*)", re.DOTALL)

_WRONG_TYPE = re.compile(r"WRONGTYPE (rb:\{.*?)(?:\.? script: .*)?$", re.DOTALL)
"""From `lua/include/types.lua`: the script wrote nothing."""
_WRONG_TYPE_ADVICE = (
    "Something other than Routebook made it. RENAME it to another name; what belongs there is written back by the "
    "workers and brokers."
)

_ADVICE: Mapping[str, str] = {
    "LOADING": "It is loading its data after a start; wait.",
    "OOM": "Raise maxmemory of the store, or free memory there; Routebook needs maxmemory-policy noeviction.",
    "MISCONF": "The store cannot write to its disk: check its log and its free disk space.",
    "READONLY": "That server is a replica; name the primary, or use a sentinel:// or cluster:// address.",
    "MASTERDOWN": "That server is a replica that has lost its primary; wait for the failover.",
    "NOREPLICAS": "Too few replicas are connected to the primary (min-replicas-to-write): check them.",
    "CLUSTERDOWN": "The cluster has slots that no node serves: check CLUSTER INFO.",
    "MOVED": "The slot has moved to another node; the next call finds it.",
    "ASK": "The slot is being moved to another node; try again.",
    "TRYAGAIN": "The slot is being moved to another node; try again.",
    "BUSY": "A script has been running for long; SCRIPT KILL ends one that has not written.",
    "NOAUTH": "Give user and password in the store's address.",
    "WRONGPASS": "Check user and password in the store's address, and that the user is on.",
}
"""Errors that concern the store as a whole and pass. The command was refused: nothing was written."""

_NEEDS_NEW_CONNECTION = frozenset({"READONLY", "MOVED", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH"})
_REDIRECTED = frozenset({"READONLY", "MOVED"})


class NoScriptError(StoreError):
    """The store does not have a script: it was restarted, or its scripts were flushed."""


class StoreRefusedError(StoreRefusalError):
    """The store answers, but with an error that concerns the store, not the command: nothing was written."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"The store refuses: {code} {text}.".replace("..", "."), advice=_ADVICE[code])
        self.code = code
        self.text = text

    @property
    def wants_new_connection(self) -> bool:
        """The connection leads to the wrong server now, or its user is no longer valid."""
        return self.code in _NEEDS_NEW_CONNECTION

    @property
    def is_cut_off(self) -> bool:
        """The primary has lost its replicas. It may be on the wrong side of a partition."""
        return self.code == "NOREPLICAS"

    @property
    def redirected(self) -> bool:
        """Another server accepts this command: it may be sent again."""
        return self.code in _REDIRECTED


class StoreReplyError(StoreError):
    """Any other error reply: the command or the script is wrong, or this user lacks the permission."""

    def __init__(self, code: str, text: str) -> None:
        advice = "Grant the store's user this command on Routebook's keys." if code == "NOPERM" else ""
        super().__init__(f"The store answers {code} {text}".rstrip(), advice=advice)
        self.code = code
        self.text = text


def translate_reply(error: RedisError) -> StoreError:
    """From redis-py's exception for an error reply, whose text lacks the code if redis-py recognized it."""
    status = getattr(error, "status_code", None)
    text = str(error.args[0]) if error.args else ""
    code, text = (status, text) if status else _split_code(text)
    if code == "ERR":
        if found := _IN_SCRIPT.search(text):
            code, text = found[1], found[2]
        elif "ACL failure in script" in text or "can't run this command or subcommand" in text:
            code = "NOPERM"
    if found := _WRONG_TYPE.search(text):
        return StoreUnsuitableError(f"The store's key {found[1]}.", advice=_WRONG_TYPE_ADVICE)
    if code == "NOSCRIPT":
        return NoScriptError(f"The store answers NOSCRIPT {text}")
    if code in _ADVICE:
        return StoreRefusedError(code, text)
    return StoreReplyError(code, text)


def _split_code(text: str) -> tuple[str, str]:
    first, _, rest = text.partition(" ")
    return (first, rest) if first.isupper() else ("ERR", text)


Word = str | bytes | int | float

MAX_UNSENT_BYTES = 64 << 20
"""Limit for data that waits to be sent on one connection, in case the store stops reading."""
CLOSE_SECONDS = 1.0


def pack(words: Sequence[Word]) -> bytes:
    """One command as the store reads it, one argument per word (`"CONFIG", "GET"`)."""
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub expects words of one type
    return packed


class Request:
    """One write to the store, and the replies that it waits for."""

    __slots__ = ("deadline", "future", "replies", "timer", "wanted")

    def __init__(self, future: asyncio.Future[list[Any]], wanted: int, deadline: float) -> None:
        self.future = future
        self.wanted = wanted
        self.deadline = deadline
        self.replies: list[Any] = []
        self.timer: asyncio.TimerHandle | None = None


class Link:
    """Wraps a connected redis-py connection. `on_end` is called once, when it breaks or is closed."""

    def __init__(
        self,
        connection: AbstractConnection,
        place: str,
        *,
        on_answer: Callable[[], None],
        on_end: Callable[["Link"], None],
    ) -> None:
        self._place = place
        self._connection = connection
        # redis-py has no public way to write without waiting; a cancelled wait here would close its connection.
        self._writer: asyncio.StreamWriter = connection._writer  # type: ignore[assignment]
        self._on_answer = on_answer
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._requests: deque[Request] = deque()
        self._lost = f"The connection to the store at {place} was lost."
        self._failure: str | None = None
        self._finishing = False
        self.ended_quietly = False
        """It was closed on purpose, or while no request waited, as when a server closes idle connections."""
        self._reading = asyncio.create_task(self._read(), name=f"read {place}")

    @property
    def ended(self) -> asyncio.Task[None]:
        """Done when the connection is closed."""
        return self._reading

    @property
    def waiting(self) -> int:
        """Requests that the store has not answered yet."""
        return len(self._requests)

    async def exchange(self, packed: bytes, wanted: int, deadline: float) -> list[Any]:
        """Sends commands and waits for `wanted` replies, or raises StoreUnavailableError. Error replies are returned as
        exceptions. The commands are written before the first wait, so calls of one task keep their order.
        """
        if self._writer.is_closing():
            # The peer has reset the connection and the reader has not noticed yet, or it was closed here.
            self.end(self._lost)
        if self._failure is not None:
            raise StoreUnavailableError(self._failure)
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise StoreUnavailableError(f"The store at {self._place} does not read what is sent to it.")
        request = Request(self._loop.create_future(), wanted, deadline)
        self._requests.append(request)
        self._writer.write(packed)
        request.timer = self._loop.call_at(deadline, self._time_out, request)
        return await request.future

    def end(self, reason: str, *, on_purpose: bool = False) -> None:
        """Fails all waiting requests at once. Whether their commands were carried out is unknown."""
        if self._failure is not None:
            return
        self._failure = reason
        self._writer.transport.abort()
        requests, self._requests = self._requests, deque()
        self.ended_quietly = on_purpose or not requests
        for request in requests:
            self._finish_request(request, StoreUnavailableError(reason))
        self._on_end(self)

    def close(self) -> None:
        """Closes the connection at once, whatever the peer does."""
        self.end(f"The connection to the store at {self._place} was closed.", on_purpose=True)

    def finish(self) -> None:
        """Closes the connection when all waiting requests are answered or overdue. No more may be sent."""
        self._finishing = True
        if not self._requests:
            self.close()

    def _time_out(self, request: Request) -> None:
        reason = f"The store at {self._place} did not answer in time."
        if not request.future.done():
            request.future.set_exception(StoreUnavailableError(reason))
        # The connection is at fault only if the oldest request is overdue itself. Otherwise the store is working on an
        # earlier request with a longer deadline. (`is`, because a timer may fire half a millisecond early.)
        oldest = self._requests[0] if self._requests else None
        if oldest and (oldest is request or oldest.deadline <= self._loop.time()):
            self.end(reason)

    async def _read(self) -> None:
        reason = self._lost
        try:
            while True:
                self._take(await self._next_reply())
        except RedisError as error:
            reason = f"The connection to the store at {self._place} was lost: {error}"
        finally:
            self.end(reason)
            await self._disconnect()

    async def _next_reply(self) -> Any:
        """Returns an error reply as a value. redis-py derives some from its ConnectionError; those have a code."""
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except RedisError as error:
            if isinstance(error, ResponseError) or getattr(error, "status_code", None):
                return translate_reply(error)
            raise

    def _take(self, reply: Any) -> None:
        if not self._requests:
            raise RedisError("the store sent a reply without a request")
        if not isinstance(reply, StoreRefusedError):
            self._on_answer()
        request = self._requests[0]
        request.replies.append(reply)
        if len(request.replies) == request.wanted:
            self._requests.popleft()
            self._finish_request(request, None)
            if self._finishing and not self._requests:
                self.close()

    @staticmethod
    def _finish_request(request: Request, error: Exception | None) -> None:
        if request.timer:
            request.timer.cancel()
        if request.future.done():
            return
        if error:
            request.future.set_exception(error)
        else:
            request.future.set_result(request.replies)

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.disconnect(nowait=True)
        except (TimeoutError, RedisError, OSError):
            pass


GROW_AT_WAITING = 16
"""Another link for calls is opened when each one has this many requests waiting."""

OpenLink = Callable[[Callable[[Link], None]], Awaitable[Link]]


class LinkSet:
    """The links to one primary. When a link breaks while requests wait, the primary is in doubt: `on_lost` is called
    once, and the whole set is dropped.
    """

    def __init__(
        self,
        address: Address | None,
        open_link: OpenLink,
        *,
        limit: int,
        on_lost: Callable[["LinkSet"], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.address = address
        self._open_link = open_link
        self._on_lost = on_lost
        self._spawn = spawn
        # One is for long pipelines. Blocking reads do not count, since they are few and idle.
        self._limit = max(1, limit - 1)
        self._calls: list[Link] = []
        self._bulk: Link | None = None
        self._bulk_opening = asyncio.Lock()
        self._blocking: list[Link] = []
        self._growing: asyncio.Task[None] | None = None
        self._retired = False

    async def open(self) -> None:
        self._calls.append(await self._open_link(self._ended))

    def for_call(self) -> Link:
        """The link with the fewest waiting requests."""
        links = self._calls
        if not links:
            raise StoreUnavailableError("The connection to the store was lost.")
        best = links[0]
        if best.waiting >= 1:
            best = min(links, key=_waiting)
            if best.waiting >= GROW_AT_WAITING and len(links) < self._limit and self._growing is None:
                self._growing = self._spawn(self._grow())
        return best

    async def for_bulk(self) -> Link:
        async with self._bulk_opening:
            if self._bulk is None:
                self._bulk = await self._open_more()
            return self._bulk

    async def for_blocking(self) -> Link:
        for link in self._blocking:
            if not link.waiting:
                return link
        link = await self._open_more()
        self._blocking.append(link)
        return link

    def retire(self) -> None:
        """Sends nothing more. Calls in progress are finished; blocking reads are aborted, since they change nothing."""
        self._retired = True
        for link in self._blocking.copy():
            link.close()
        for link in self._shared():
            link.finish()
        if self._growing:
            self._growing.cancel()

    def _shared(self) -> list[Link]:
        return [*self._calls, self._bulk] if self._bulk else self._calls.copy()

    async def _open_more(self) -> Link:
        link = await self._open_link(self._ended)
        if self._retired:
            link.close()
        return link

    async def _grow(self) -> None:
        # A failure here needs no report: calls on the existing links will see the same problem.
        with suppress(StoreError):
            self._calls.append(await self._open_more())
        self._growing = None

    def _ended(self, link: Link) -> None:
        if link is self._bulk:
            self._bulk = None
        for links in (self._calls, self._blocking):
            if link in links:
                links.remove(link)
        if not self._retired and (not link.ended_quietly or not self._calls):
            self._on_lost(self)


def _waiting(link: Link) -> int:
    return link.waiting
