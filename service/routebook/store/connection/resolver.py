"""Finds the primary. No other code depends on Sentinel or Cluster.

All nodes are asked at once, and the majority decides: a sentinel that was cut off together with an old primary still
names that one, and a node that is down must not delay every search by its timeout.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from redis.crc import key_slot

from routebook.errors import StoreError, StoreUnavailableError
from routebook.store.connection.dialer import Dialer
from routebook.store.connection.url import Address, Layout, StoreUrl

ASK_SECONDS = 1.0
_ADVICE = {
    Layout.SENTINEL: "Name the sentinels (usually port 26379), not the servers, and the master as they call it.",
    Layout.CLUSTER: "Name nodes of a Cluster that are running; a single server is redis://host:port.",
}


class Resolver:
    """Lists the servers that may be the primary, the most likely one first. ROLE then shows whether a server is."""

    def __init__(self, url: StoreUrl, slot_key: str, dialer: Dialer) -> None:
        self._url = url
        self._slot = key_slot(slot_key.encode())
        self._dialer = dialer
        self._known_nodes: set[Address] = set(url.addresses)
        self._pointed_at: Address | None = None

    async def find(self) -> list[Address | None]:
        """None stands for the socket. Raises StoreUnavailableError if no node names a primary."""
        if self._url.layout is Layout.SINGLE:
            return [self._url.addresses[0] if self._url.addresses else None]
        pointed_at, self._pointed_at = self._pointed_at, None
        if pointed_at:
            return [pointed_at]
        votes = await self._ask_all()
        return [address for address, _ in votes.most_common()]

    async def find_promoted(self, current: Address) -> Address | None:
        """The primary that a majority of the nodes names, if it is not `current`. Fewer are not enough to leave a
        primary that answers: they may be cut off together with an old one.
        """
        nodes = len(self._nodes)
        votes = await self._ask_all()
        ((named, count),) = votes.most_common(1)
        return named if named != current and count > nodes // 2 else None

    @property
    def _nodes(self) -> Collection[Address]:
        return self._url.addresses if self._url.layout is Layout.SENTINEL else self._known_nodes

    async def _ask_all(self) -> Counter[Address]:
        """How many nodes name each address; not all of them if a majority has been found."""
        if self._url.layout is Layout.SENTINEL:
            return await self._vote(self._nodes, self._ask_sentinel)
        return await self._vote(self._nodes, self._ask_node)

    def point_at(self, redirection: str, asked: Address | None) -> None:
        """Uses a node's `MOVED <slot> <host>:<port>` for the next search. An empty host is the node that was asked."""
        host, _, port = redirection.rpartition(" ")[2].rpartition(":")
        if port.isdecimal() and asked:
            self._pointed_at = Address(host or asked.host, int(port))

    async def _ask_sentinel(self, sentinel: Address) -> Address | None:
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.master or "")
        reply = await self._dialer.ask(sentinel, command, self._url.sentinel_credentials)
        return Address(reply[0].decode(), int(reply[1])) if reply else None

    async def _ask_node(self, node: Address) -> Address | None:
        slots = await self._dialer.ask(node, ("CLUSTER", "SLOTS"), self._url.credentials)
        owner = None
        named = set(self._url.addresses)
        for first, last, *nodes in slots:
            addresses = [_announced(entry, node) for entry in nodes]
            named.update(addresses)
            if first <= self._slot <= last:
                owner = addresses[0]
        # Nodes that left the cluster are not asked again.
        self._known_nodes = named
        return owner

    async def _vote(
        self, nodes: Collection[Address], ask: Callable[[Address], Awaitable[Address | None]]
    ) -> Counter[Address]:
        votes: Counter[Address] = Counter()
        failures: list[str] = []
        tasks = [asyncio.ensure_future(ask(node)) for node in nodes]
        try:
            for answer in asyncio.as_completed(tasks, timeout=ASK_SECONDS):
                try:
                    named = await answer
                except StoreError as error:
                    failures.append(str(error))
                    continue
                if named is None:
                    failures.append(self._names_no_primary())
                    continue
                votes[named] += 1
                if votes[named] > len(tasks) // 2:
                    break
        except TimeoutError:
            failures.append(f"no answer within {ASK_SECONDS:g} s")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not votes:
            raise StoreUnavailableError(
                f"No node of {self._url} names a primary: {failures[0]}", advice=_ADVICE[self._url.layout]
            )
        return votes

    def _names_no_primary(self) -> str:
        if self._url.layout is Layout.SENTINEL:
            return f"the sentinels have no master {self._url.master!r}."
        return f"no node of the cluster serves slot {self._slot}."


def _announced(entry: list[Any], asked: Address) -> Address:
    """A node that does not know its own address omits it; then it has the address that was asked."""
    host = (entry[0] or b"").decode()
    return Address(host if host not in ("", "?") else asked.host, int(entry[1]))
