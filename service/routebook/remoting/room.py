"""Which connections are closed when the port has as many as `max_connections` and another one arrives.

1. Connections that carry no broker, the longest idle first.
2. Connections in the slots that are kept for known brokers (`kept_connections_percent`). Other connections may use
   these slots, and are closed when room is needed. Connections of the address with most of them are closed first; of
   the same address, those with the newest brokers.
3. A connection of an address that has more than half of all, if the new connection comes from another address.

A broker is known when this worker has seen it for `KNOWN_AFTER_S`. So a crowd of new brokers can fill neither the kept
slots, nor, from one address, the whole port. A new connection never causes a search through all connections:
the sweep prepares the candidates, and one pass over the kept slots frees several of them.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from math import inf
from operator import itemgetter
from typing import Final, Protocol

from routebook.listeners.peers import Peer
from routebook.registry.registry import Registry, SessionConnection
from routebook.settings import Settings

SPARED_AT_ONCE: Final = 16
SPARED_PER_SWEEP: Final = 1_000
KNOWN_AFTER_S: Final = 60.0
"""Two registration periods."""
REMEMBERED_S: Final = 600.0
"""A broker that was known and left is known again at once if it returns within this time."""
FREED_SHARE: Final = 50
"""When kept slots are freed, it is one of this many at once, and at least one."""
OBSERVED_EVERY_S: Final = 5.0
REASON: Final = "room for others is needed"


class PortConnection(SessionConnection, Protocol):
    """The interface of a connection that `Room` needs."""

    @property
    def peer_costs(self) -> Peer: ...

    @property
    def is_closing(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def abort(self, reason: str) -> None: ...


class Room:
    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry = registry
        self._max_connections = settings.max_connections
        self._ordinary = self._max_connections - self._max_connections * settings.kept_connections_percent // 100
        self._idle: list[PortConnection] = []
        """As the last sweep saw them; the one that has been idle for longest is the last."""
        self._in_kept_slots: dict[PortConnection, None] = {}
        self._crowd: Peer | None = None
        """The address that had more than half of all connections at the last sweep."""
        self._first_seen: dict[str, float] = {}
        """By instance name. -inf: before this worker began to serve."""
        self._last_seen: dict[str, float] = {}
        self._next_observation = -inf
        self._now = 0.0

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    def add(self, connection: PortConnection, count: int) -> None:
        """`count`: the connections of the port, with this one."""
        if count > self._ordinary:
            self._in_kept_slots[connection] = None

    def remove(self, connection: PortConnection, count: int) -> None:
        """`count`: the connections of the port, without this one."""
        self._in_kept_slots.pop(connection, None)
        while len(self._in_kept_slots) > max(count - self._ordinary, 0):
            # Ordinary slots have become free; the oldest connections in kept slots get them.
            del self._in_kept_slots[next(iter(self._in_kept_slots))]

    def begin(self, now: float) -> None:
        """Called before the first connection is accepted: all brokers of the table are known."""
        self._observe_brokers(now, since=-inf)

    def observe(
        self, now: float, idle: Sequence[tuple[float, PortConnection]], connections: Collection[PortConnection]
    ) -> None:
        """Called by the sweep. `idle`: connections with the time since when they are idle."""
        self._now = now
        longest_idle = heapq.nsmallest(SPARED_PER_SWEEP, idle, key=itemgetter(0))
        self._idle = [connection for _, connection in longest_idle][::-1]
        self._crowd = None
        if len(connections) >= self._ordinary:
            half = self._max_connections // 2
            self._crowd = next((one.peer_costs for one in connections if one.peer_costs.connections > half), None)
        if now >= self._next_observation:
            self._observe_brokers(now, since=now)
            self._next_observation = now + OBSERVED_EVERY_S

    def free(self, host: str | None, connections: Iterable[PortConnection]) -> int:
        """Closes some connections and returns their number. `host`: where the new connection comes from, if known."""
        return self._close_idle() or self._close_in_kept_slots() or self._close_one_of_crowd(host, connections)

    def _close_idle(self) -> int:
        closed = 0
        while self._idle and closed < SPARED_AT_ONCE:
            connection = self._idle.pop()
            is_spare = not connection.is_closing and not connection.is_busy
            if is_spare and not self._registry.sessions.has_instances(connection):
                connection.close(REASON)
                closed += 1
        return closed

    def _close_in_kept_slots(self) -> int:
        open_ones = [connection for connection in self._in_kept_slots if not connection.is_closing]
        spare = [
            (-connection.peer_costs.connections, -since, number, connection)
            for number, connection in enumerate(open_ones)
            if self._now - (since := self._seen_since(connection)) < KNOWN_AFTER_S
        ]
        victims = heapq.nsmallest(1 + len(spare) // FREED_SHARE, spare)
        for *_, connection in victims:
            connection.abort(REASON)
        return len(victims)

    def _close_one_of_crowd(self, host: str | None, connections: Iterable[PortConnection]) -> int:
        crowd = self._crowd
        if host is None or crowd is None or crowd.host == host or crowd.connections * 2 <= self._max_connections:
            return 0
        candidates = [one for one in connections if one.peer_costs is crowd and not one.is_closing]
        if not candidates:
            return 0
        max(candidates, key=self._seen_since).abort(REASON)
        return 1

    def _seen_since(self, connection: PortConnection) -> float:
        """When the oldest of its brokers was first seen; infinity if it carries none that the sweep has seen."""
        names = self._registry.sessions.instances_of(connection)
        return min((self._first_seen.get(name, self._now) for name in names), default=inf)

    def _observe_brokers(self, now: float, *, since: float) -> None:
        for name in self._registry.replica.table.instances:
            self._first_seen.setdefault(name, since)
            self._last_seen[name] = now
        for name in [name for name, seen in self._last_seen.items() if self._is_forgotten(name, seen, now)]:
            del self._last_seen[name], self._first_seen[name]

    def _is_forgotten(self, name: str, last_seen: float, now: float) -> bool:
        was_known = last_seen - self._first_seen[name] >= KNOWN_AFTER_S
        return last_seen < now - (REMEMBERED_S if was_known else 0.0)
