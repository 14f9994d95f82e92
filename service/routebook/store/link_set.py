"""The connections to one primary, by what travels on them.

Heartbeats must never wait behind the load of a whole table: calls share some links, long pipelines have one
of their own, and a read that blocks in the store has one to itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from routebook.errors import StoreError, StoreUnavailableError
from routebook.store.link import Link
from routebook.store.url import Address

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
