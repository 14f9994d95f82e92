"""One connection to the store, shared by many callers.

Invariant: the store answers a connection's commands in their order, so the oldest waiting request owns the
next reply, whoever still waits for it. A caller that goes away (cancelled, out of time) leaves its place in
the queue behind, and its reply is read and dropped: no command is cancelled in flight, and no caller can
get another one's answer.

Why shared and not lent out one call at a time, as redis-py's pool does: a store that is slow by half a
second would then serve 16 calls a second through 8 connections while the others run out of time; and a
shared one writes and reads many commands at once, so it costs less than a borrowed one.

The connections to one primary, by what travels on them.

Heartbeats must never wait behind the load of a whole table: calls share some links, long pipelines have one
of their own, and a read that blocks in the store has one to itself.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from routebook.errors import StoreError, StoreUnavailableError
from routebook.store.connection.replies import StoreRefusedError, translate_reply
from routebook.store.connection.url import Address

Word = str | bytes | int | float

MAX_UNSENT_BYTES = 64 << 20
"""What may wait to be sent on one connection: a store that stopped reading must not fill our memory."""
CLOSE_SECONDS = 1.0


def pack(words: Sequence[Word]) -> bytes:
    """One command as the store reads it; every word apart (`"CONFIG", "GET"`)."""
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub means "each is one of"
    return packed


class Request:
    """One write to the store and the replies it is owed."""

    __slots__ = ("deadline", "future", "replies", "timer", "wanted")

    def __init__(self, future: asyncio.Future[list[Any]], wanted: int, deadline: float) -> None:
        self.future = future
        self.wanted = wanted
        self.deadline = deadline
        self.replies: list[Any] = []
        self.timer: asyncio.TimerHandle | None = None


class Link:
    """Wraps a connected redis-py connection. `on_end` is told once when it has broken or was closed."""

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
        # redis-py has no public way to write without waiting; a wait here could be cancelled, which closes
        # its connection.
        self._writer: asyncio.StreamWriter = connection._writer  # type: ignore[assignment]
        self._on_answer = on_answer
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._requests: deque[Request] = deque()
        self._lost = f"The connection to the store at {place} was lost."
        self._failure: str | None = None
        self._finishing = False
        self.ended_quietly = False
        """By us, or while nobody waited (as by a server that closes idle connections): no sign of trouble."""
        self._reading = asyncio.create_task(self._read(), name=f"read {place}")

    @property
    def ended(self) -> asyncio.Task[None]:
        """Done when nothing of the link is left."""
        return self._reading

    @property
    def waiting(self) -> int:
        """Requests that the store still owes an answer."""
        return len(self._requests)

    async def exchange(self, packed: bytes, wanted: int, deadline: float) -> list[Any]:
        """Send and wait for `wanted` replies, error replies among them as exceptions, or raise
        StoreUnavailableError.

        Written before the first wait, so calls of one task keep their order.
        """
        if self._writer.is_closing():
            # Reset by the peer a moment ago, which the reader has not seen yet; or by us.
            self.break_off(self._lost)
        if self._failure is not None:
            raise StoreUnavailableError(self._failure)
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise StoreUnavailableError(f"The store at {self._place} does not read what is sent to it.")
        request = Request(self._loop.create_future(), wanted, deadline)
        self._requests.append(request)
        self._writer.write(packed)
        request.timer = self._loop.call_at(deadline, self._time_out, request)
        return await request.future

    def break_off(self, why: str, *, on_purpose: bool = False) -> None:
        """Everyone who waits is told, at once. Whether their commands were carried out is unknown."""
        if self._failure is not None:
            return
        self._failure = why
        self._writer.transport.abort()
        requests, self._requests = self._requests, deque()
        self.ended_quietly = on_purpose or not requests
        for request in requests:
            self._settle(request, StoreUnavailableError(why))
        self._on_end(self)

    def close(self) -> None:
        """At once, whatever the peer does."""
        self.break_off(f"The connection to the store at {self._place} was closed.", on_purpose=True)

    def finish(self) -> None:
        """Close when the answers owed have come, or are overdue; nothing new is to be sent."""
        self._finishing = True
        if not self._requests:
            self.close()

    def _time_out(self, request: Request) -> None:
        why = f"The store at {self._place} did not answer in time."
        if not request.future.done():
            request.future.set_exception(StoreUnavailableError(why))
        # Only when the answer that is due next is itself overdue is the connection at fault. Else the store
        # is at work on a longer one before it, which has a deadline of its own. ("is": a timer may be early
        # by half a millisecond.)
        due = self._requests[0] if self._requests else None
        if due and (due is request or due.deadline <= self._loop.time()):
            self.break_off(why)

    async def _read(self) -> None:
        why = self._lost
        try:
            while True:
                self._take(await self._next_reply())
        except RedisError as error:
            why = f"The connection to the store at {self._place} was lost: {error}"
        finally:
            self.break_off(why)
            await self._disconnect()

    async def _next_reply(self) -> Any:
        """An error reply comes back as a value. redis-py derives some of them from its ConnectionError:
        hence the code.
        """
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except RedisError as error:
            if isinstance(error, ResponseError) or getattr(error, "status_code", None):
                return translate_reply(error)
            raise

    def _take(self, reply: Any) -> None:
        if not self._requests:
            raise RedisError("an answer that nobody asked for")
        if not isinstance(reply, StoreRefusedError):
            self._on_answer()
        request = self._requests[0]
        request.replies.append(reply)
        if len(request.replies) == request.wanted:
            self._requests.popleft()
            self._settle(request, None)
            if self._finishing and not self._requests:
                self.close()

    @staticmethod
    def _settle(request: Request, error: Exception | None) -> None:
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
"""Open another link for calls when each has this many answers outstanding."""

OpenLink = Callable[[Callable[[Link], None]], Awaitable[Link]]


class LinkSet:
    """Good as a whole or not at all: when a link breaks under somebody, the primary is in doubt and
    `on_lost` is called once.
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
        # One is for long pipelines; blocking reads come on top, being few and idle.
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
        """The one with the fewest answers outstanding."""
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
        """Nothing new is sent. Calls under way are finished; reads that block are cut, for they change
        nothing.
        """
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
        # Failing to grow is no news: whoever waits on the links there are will see what is wrong.
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
