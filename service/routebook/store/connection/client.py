"""Calls to the store, each with a deadline, over connections to the current primary.

All layouts use the same path: the resolver finds the primary, the dialer connects and checks its role, and a set of
links carries the calls. When something casts doubt on the primary (a broken connection, an overdue answer, READONLY,
MOVED), the set is dropped, and the next call finds the primary again. A call is not repeated automatically, because a
write whose answer was lost may have been carried out. The only exception is a redirected call, which was refused.

A primary that was cut off from its replicas keeps its connections and answers reads long after a replica was promoted.
So with Sentinel or Cluster, the nodes are asked again every few seconds, and at once when a write is refused with
NOREPLICAS. When they name another primary that can be reached, the set is dropped, too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from routebook.errors import EpochEndedError, NotPrimaryError, StoreError, StoreUnavailableError
from routebook.store.connection.dialer import UNREACHABLE_ADVICE, Dialer, Resolver
from routebook.store.connection.link import Link, LinkSet, NoScriptError, StoreRefusedError, StoreReplyError, Word, pack
from routebook.store.connection.url import Address, Layout, StoreUrl

__all__ = ["NoScriptError", "StoreClient", "StoreRefusedError", "StoreReplyError", "Word"]

ATTEMPT_SECONDS = 3.0
"""Limit for finding the primary and connecting to it, which takes several round trips."""
PAUSE_AFTER_FAILURE_SECONDS = 0.05
"""Limits the number of connection attempts to a server that is starting, however many calls wait for it."""
SMALL_PIPELINE = 8
"""A pipeline with at most that many commands uses the links for calls; a longer one uses the link for pipelines."""
CLOSE_SECONDS = 2.0
PRIMARY_CHECK_SECONDS = 5.0
"""How often Sentinel or Cluster is asked whether the primary in use is still the primary."""
DOUBT_PAUSE_SECONDS = 1.0
"""The least time between two such questions, however many writes are refused meanwhile."""
REFUSALS_APART_SECONDS = 3.0
"""A worker writes at least once a second. After this time without a refusal, writes are accepted again."""

_log = logging.getLogger(__name__)


class StoreClient:
    """One worker's connections to the store. It belongs to the event loop that opened it."""

    def __init__(self, url: StoreUrl, *, slot_key: str, timeout_ms: int, connections: int = 8) -> None:
        """`slot_key`: any key of the namespace; on a cluster, its slot's owner is the primary."""
        self.url = url
        self._timeout_ms = timeout_ms
        self._connections = connections
        self._dialer = Dialer(url)
        self._resolver = Resolver(url, slot_key, self._dialer)
        self._links: LinkSet | None = None
        self._open_links: set[Link] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connecting: asyncio.Task[LinkSet] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._primary_in_doubt = asyncio.Event()
        self._not_before = 0.0
        self._last_answer = time.monotonic()
        self._refused_since = self._last_refusal = float("-inf")
        self._epoch = 0
        self._closed = False

    @property
    def epoch(self) -> int:
        """Increases with every new set of connections: the store may have changed in between."""
        return self._epoch

    @property
    def is_connected(self) -> bool:
        """Connected, without a failure since the last answer."""
        return self._links is not None

    def answer_age_ms(self) -> int:
        """Time since the last answer, or since `open` if there was none."""
        return int((time.monotonic() - self._last_answer) * 1000)

    def cut_off_ms(self) -> int:
        """How long the primary has refused writes because it lost its replicas; 0 if it does not. Another primary may
        have been promoted where this worker cannot see it.
        """
        now = time.monotonic()
        return int((now - self._refused_since) * 1000) if now - self._last_refusal < REFUSALS_APART_SECONDS else 0

    async def open(self) -> None:
        """Connects, or raises StoreUnavailableError with the reason. Either way, later calls connect by themselves."""
        self._answered()
        if self._watching is None and self.url.layout is not Layout.SINGLE:
            self._watching = self._spawn(self._watch_primary())
        await self._connected(self._deadline(int(ATTEMPT_SECONDS * 1000) + 1000))

    async def close(self) -> None:
        """Calls that are waiting fail. It returns soon, whatever the store does, and leaves no task behind."""
        self._closed = True
        self._links = None
        tasks = self._tasks | {link.ended for link in self._open_links}
        for task in self._tasks:
            task.cancel()
        for link in self._open_links.copy():
            link.close()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    async def call(self, *words: Word, timeout_ms: int | None = None, epoch: int | None = None) -> Any:
        """Sends one command, one argument per word, and returns the reply: bytes, int, list or None. With an epoch, it
        is sent on no other connections than those of that epoch.
        """
        deadline = self._deadline(timeout_ms)
        packed = pack(words)
        links = self._links or await self._connected(deadline)
        self._check_epoch(epoch)
        (reply,) = await links.for_call().exchange(packed, 1, deadline)
        if isinstance(reply, StoreError):
            if not self._redirected(reply, links):
                raise reply
            links = await self._connected(deadline)
            self._check_epoch(epoch)
            (reply,) = await links.for_call().exchange(packed, 1, deadline)
            if isinstance(reply, StoreError):
                self._redirected(reply, links)
                raise reply
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Word]], timeout_ms: int | None = None) -> list[Any]:
        """Sends all commands at once on one connection, not as a transaction. If one is refused its error is raised;
        the others have been carried out.
        """
        if not commands:
            return []
        deadline = self._deadline(timeout_ms)
        packed = b"".join([pack(command) for command in commands])
        links = self._links or await self._connected(deadline)
        small = len(commands) <= SMALL_PIPELINE
        link = links.for_call() if small else await self._in_time(links.for_bulk(), deadline)
        replies = await link.exchange(packed, len(commands), deadline)
        for reply in replies:
            if isinstance(reply, StoreError):
                self._redirected(reply, links)
                raise reply
        return replies

    async def call_blocking(self, *words: Word, block_ms: int) -> Any:
        """A read that waits in the store (XREAD BLOCK), on a connection of its own. Cancelling the call closes that
        connection.
        """
        deadline = self._deadline(self._timeout_ms + block_ms)
        links = self._links or await self._connected(self._deadline(None))
        link = await self._in_time(links.for_blocking(), self._deadline(None))
        try:
            (reply,) = await link.exchange(pack(words), 1, deadline)
        except asyncio.CancelledError:
            link.close()
            raise
        if isinstance(reply, StoreError):
            self._redirected(reply, links)
            raise reply
        return reply

    def _check_epoch(self, epoch: int | None) -> None:
        if epoch is not None and epoch != self._epoch:
            raise EpochEndedError("The connections to the store were replaced meanwhile.", advice="Try again.")

    def _deadline(self, timeout_ms: int | None) -> float:
        return asyncio.get_running_loop().time() + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def _redirected(self, error: StoreError, links: LinkSet) -> bool:
        """Acts on an error reply. Returns whether the same command may be sent to another server."""
        if not isinstance(error, StoreRefusedError):
            return False
        if error.code == "MOVED":
            self._resolver.point_at(error.text, links.address)
        if error.wants_new_connection:
            self._drop(links)
        if error.is_cut_off:
            self._primary_in_doubt.set()
            self._refused()
        return error.redirected

    async def _connected(self, deadline: float) -> LinkSet:
        """The current set of links, or a new one. All callers share one attempt; each waits until its own deadline."""
        if self._closed:
            raise StoreUnavailableError("The connection to the store has been closed.")
        if self._links:
            return self._links
        if self._connecting is None:
            self._connecting = self._spawn(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        attempt = self._connecting
        await asyncio.wait([attempt], timeout=deadline - asyncio.get_running_loop().time())
        if not attempt.done():
            raise self._too_late()
        if attempt.cancelled():
            raise StoreUnavailableError("The connection to the store has been closed.")
        if isinstance(error := attempt.exception(), StoreUnavailableError):
            # A new error for each caller: a shared one would collect the tracebacks of all of them.
            kind = NotPrimaryError if isinstance(error, NotPrimaryError) else StoreUnavailableError
            raise kind(error.message, advice=error.advice)
        return attempt.result()

    async def _in_time(self, opening: Coroutine[Any, Any, Link], deadline: float) -> Link:
        try:
            async with asyncio.timeout_at(deadline):
                return await opening
        except TimeoutError:
            raise self._too_late() from None

    def _too_late(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"The store at {self.url} could not be reached in time.", advice=UNREACHABLE_ADVICE
        )

    async def _connect(self) -> LinkSet:
        await asyncio.sleep(self._not_before - asyncio.get_running_loop().time())
        self._dialer.reload_tls()
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                return await self._connect_to_first(await self._resolver.find())
        except TimeoutError:
            raise StoreUnavailableError(
                f"The store at {self.url} could not be reached within {ATTEMPT_SECONDS:g} s.",
                advice=UNREACHABLE_ADVICE,
            ) from None

    async def _connect_to_first(self, addresses: Sequence[Address | None]) -> LinkSet:
        failures: list[StoreUnavailableError] = []
        for address in addresses:
            try:
                return await self._open_set(address)
            except StoreUnavailableError as error:
                failures.append(error)
        raise failures[0]

    async def _open_set(self, address: Address | None) -> LinkSet:
        links = LinkSet(
            address,
            lambda on_end: self._open_link(address, on_end),
            limit=self._connections,
            on_lost=self._drop,
            spawn=self._spawn,
        )
        await links.open()
        self._links = links
        self._last_refusal = float("-inf")
        self._epoch += 1
        self._answered()
        return links

    async def _open_link(self, address: Address | None, on_end: Callable[[Link], None]) -> Link:
        def ended(link: Link) -> None:
            self._open_links.discard(link)
            self._tasks.add(link.ended)
            on_end(link)

        connection = await self._dialer.dial_primary(address)
        link = Link(connection, self._dialer.name(address), on_answer=self._answered, on_end=ended)
        link.ended.add_done_callback(self._tasks.discard)
        self._open_links.add(link)
        return link

    async def _watch_primary(self) -> None:
        """Runs until the client is closed."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._primary_in_doubt.wait(), PRIMARY_CHECK_SECONDS)
            self._primary_in_doubt.clear()
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    await self._use_promoted_primary()
            await asyncio.sleep(DOUBT_PAUSE_SECONDS)

    async def _use_promoted_primary(self) -> None:
        """Drops the links if most nodes name another primary. It is contacted first: a primary that cannot be reached
        is no better than the one in use, which still answers reads.
        """
        links = self._links
        if links is None or links.address is None:
            return
        promoted = await self._resolver.find_promoted(links.address)
        if promoted is None:
            return
        connection = await self._dialer.dial_primary(promoted)
        await connection.disconnect(nowait=True)
        if self._links is links:
            _log.warning("The primary of the store is now %s and no longer %s.", promoted, links.address)
            self._drop(links)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that `close` ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _connect_ended(self, task: asyncio.Task[LinkSet]) -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is not None:
            self._not_before = task.get_loop().time() + PAUSE_AFTER_FAILURE_SECONDS

    def _answered(self) -> None:
        self._last_answer = time.monotonic()

    def _refused(self) -> None:
        now = time.monotonic()
        if now - self._last_refusal >= REFUSALS_APART_SECONDS:
            self._refused_since = now
        self._last_refusal = now

    def _drop(self, links: LinkSet) -> None:
        if self._links is links:
            self._links = None
        links.retire()
