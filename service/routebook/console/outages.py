"""When brokers were away: each removal of a broker from its seat, joined with its return.

The history is read once, backwards and bounded, and then only what is new. Shared by all pages of a worker.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from routebook.registry.registry import Registry
from routebook.store.change_search import ChangeFilter, Cursor, FoundEntry, Position

SPAN_MS: Final = 7 * 86_400_000
"""How far back removals are listed."""
MAX_OUTAGES: Final = 2_000
MAX_PAGES: Final = 12
"""Each reads at most 5,000 entries."""
PAGE: Final = 500
_KINDS: Final = frozenset({"broker-registered", "broker-removed"})
_PLANNED: Final = frozenset({"unregistered", "moved", "replaced", "turned-down", "operator"})
CAUSES: Final[Mapping[str, str]] = {
    "expired": "sent no heartbeat until its deadline",
    "connection-lost": "lost its connection",
    "unregistered": "deregistered",
    "moved": "moved to another id",
    "replaced": "another address took its place",
    "turned-down": "turned down: its place belongs to another address",
    "operator": "removed by an operator",
}

SeatKey = tuple[str, str, int]
"""Cluster, broker name, broker id. A broker may return in another cluster, so the cluster does not identify it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A seat without a broker."""

    seat: SeatKey
    address: str
    cause: str
    gone_ms: int
    """When the broker was removed."""
    last_heartbeat_ms: int | None
    version: int
    actor: str
    back_ms: int | None = None
    back_address: str = ""

    @property
    def is_planned(self) -> bool:
        return self.cause in _PLANNED

    def lasted_ms(self, now_ms: int) -> int:
        return (self.back_ms or now_ms) - self.gone_ms


@dataclass(slots=True)
class _Log:
    history: str = ""
    version: int = 0
    """Everything up to this version was read."""
    reaches_back_ms: int = 0
    open: dict[tuple[str, int], Outage] = field(default_factory=dict)
    closed: list[Outage] = field(default_factory=list)
    """Oldest first."""

    def apply(self, entry: FoundEntry) -> None:
        fields = entry.fields
        seat = (str(fields["cluster"]), str(fields["broker"]), int(fields["id"]))
        if fields["kind"] == "broker-removed":
            self.open.pop(seat[1:], None)
            self.open[seat[1:]] = _outage(seat, entry.id.ms, entry.id.number, fields)
            if len(self.open) > MAX_OUTAGES:
                del self.open[next(iter(self.open))]
        elif (found := self.open.pop(seat[1:], None)) is not None:
            self.closed.append(replace(found, back_ms=entry.id.ms, back_address=str(fields["addr"])))
            del self.closed[:-MAX_OUTAGES]


def _outage(seat: SeatKey, ms: int, version: int, fields: Mapping[str, Any]) -> Outage:
    last = fields.get("last_heartbeat_ms")
    actor = str(fields.get("actor", ""))
    return Outage(seat, str(fields["addr"]), str(fields["cause"]), ms, last, version, actor)


class Outages:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._log = _Log()
        self._turn = asyncio.Lock()

    async def read(self) -> tuple[Sequence[Outage], int]:
        """Newest first, and how far back they reach."""
        async with self._turn:
            replica = self._registry.replica
            if self._log.history != replica.history:
                self._log = await self._read_back()
            elif self._log.version < replica.version:
                await self._read_on()
            found = [*self._log.open.values(), *self._log.closed]
            return sorted(found, key=lambda outage: -outage.version), self._log.reaches_back_ms

    async def _read_back(self) -> _Log:
        replica = self._registry.replica
        log = _Log(replica.history, replica.version)
        log.reaches_back_ms = int(time.time() * 1000) - SPAN_MS
        wanted, since = ChangeFilter(kinds=_KINDS), Position(ms=log.reaches_back_ms)
        cursor: Cursor | None = None
        entries: list[FoundEntry] = []
        for _ in range(MAX_PAGES):
            page = await self._registry.search_changes(
                wanted,
                since=since,
                until=Position(version=log.version),
                cursor=cursor,
                newest_first=True,
                limit=PAGE,
            )
            entries += page.entries
            cursor = page.cursor
            if not page.has_more:
                break
        else:
            log.reaches_back_ms = cursor.change.ms if cursor else log.reaches_back_ms
        began = await self._registry.past.history_began_ms()
        log.reaches_back_ms = max(log.reaches_back_ms, began or 0)
        for entry in reversed(entries):
            log.apply(entry)
        return log

    async def _read_on(self) -> None:
        """What came since. Only if it is too much for a few pages is everything read again."""
        for _ in range(MAX_PAGES):
            page = await self._registry.search_changes(
                ChangeFilter(kinds=_KINDS), since=Position(version=self._log.version), limit=PAGE
            )
            for entry in page.entries:
                self._log.apply(entry)
            self._log.version = max(self._log.version, page.cursor.change.number)
            if not page.has_more:
                return
        self._log = await self._read_back()
