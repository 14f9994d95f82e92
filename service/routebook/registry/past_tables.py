"""The route table as it was at an instant, and the heartbeat gaps of a group, both read from the store's streams.

A past table is the newest complete baseline before that instant with every later change applied. The beginning of a
history is an empty table, so a history that still has its first entry needs no baseline. The work is bounded: a past
table reads at most `MAX_ENTRIES` entries, in steps between which lookups are answered, and one is computed at a time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from routebook.errors import PastUnknownError
from routebook.model.broker import PERM_WRITE, BrokerGroup, QueueData
from routebook.store.history import (
    Change,
    SeatGaps,
    find_baseline,
    find_id,
    first_change,
    read_backward,
    read_changes,
    read_heartbeat_gaps,
)
from routebook.store.namespace import Namespace

MAX_ENTRIES: Final = 100_000
"""Entries that a past table may read after its baseline: some seconds of work."""
PAGE: Final = 500
STEP_ITEMS: Final = 1_000
"""Topics that are applied before other work gets a turn."""


class PastSeat(NamedTuple):
    version: int
    """The version of the last entry that named the seat."""
    cluster: str
    address: str


SeatName = tuple[str, int]
"""Broker name and broker id. The cluster is not part of it: a broker may register under another one."""


@dataclass(slots=True)
class PastTable:
    """Seats, queues and flags of groups, derived from entries of the history alone."""

    version: int = 0
    ms: int = 0
    """Time of the last entry that was applied."""
    seats: dict[SeatName, PastSeat] = field(default_factory=dict)
    queues: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    """Broker name → topic → queues."""
    named: dict[str, dict[str, int]] = field(default_factory=dict)
    """Broker name → topic → version of the last entry that named it."""
    flags: dict[str, tuple[str | None, bool]] = field(default_factory=dict)
    """Broker name → zone, and whether it may have an acting master."""

    def copy(self) -> "PastTable":
        return PastTable(
            self.version,
            self.ms,
            dict(self.seats),
            {broker: dict(topics) for broker, topics in self.queues.items()},
            {broker: dict(topics) for broker, topics in self.named.items()},
            dict(self.flags),
        )

    def brokers_of(self, topic: str) -> dict[str, QueueData]:
        return {broker: topics[topic] for broker, topics in sorted(self.queues.items()) if topic in topics}

    def group(self, broker: str) -> BrokerGroup | None:
        seats = {broker_id: taken for (name, broker_id), taken in sorted(self.seats.items()) if name == broker}
        if not seats:
            return None
        zone, acting = self.flags.get(broker, (None, False))
        addresses = {broker_id: taken.address for broker_id, taken in seats.items()}
        return BrokerGroup(broker, next(iter(seats.values())).cluster, zone, acting, addresses)

    def apply(self, change: Change) -> int:
        """Returns the number of topics that it named, which is the work done."""
        self.version, self.ms = change.version, change.ms
        fields, broker = change.fields, str(change.fields.get("broker", ""))
        match change.kind:
            case "broker-registered" | "broker-changed" | "baseline-seat":
                seat = (broker, int(fields["id"]))
                self.seats[seat] = PastSeat(change.version, str(fields["cluster"]), str(fields["addr"]))
                self.flags[broker] = (fields.get("zone"), bool(fields.get("acting")))
            case "broker-removed":
                seat = (broker, int(fields["id"]))
                if (taken := self.seats.get(seat)) and taken.address == fields["addr"]:
                    del self.seats[seat]
            case "group-changed" if not fields.get("group_removed"):
                self.flags[broker] = (fields.get("zone"), bool(fields.get("acting")))
            case "write-permission":
                return self._set_permission(broker, str(fields["rule"]), int(fields["perm"]))
            case "baseline-end":
                return self._end_baseline(int(fields["begin"]))
        items = fields.get("queues") or ()
        for item in items:
            self._apply_item(broker, item, change.version)
        if fields.get("group_removed"):
            self.queues.pop(broker, None)
            self.named.pop(broker, None)
            self.flags.pop(broker, None)
        return len(items)

    def _apply_item(self, broker: str, item: Mapping[str, Any], version: int) -> None:
        topic = str(item["t"])
        if "x" in item:
            self.queues.get(broker, {}).pop(topic, None)
            self.named.get(broker, {}).pop(topic, None)
            return
        self.queues.setdefault(broker, {})[topic] = QueueData(item["r"], item["w"], item["p"], item["f"])
        self.named.setdefault(broker, {})[topic] = version

    def _set_permission(self, broker: str, rule: str, perm: int) -> int:
        topics = self.queues.get(broker, {})
        for topic, queue in topics.items():
            new = perm if rule == "set" else queue.perm & ~PERM_WRITE
            topics[topic] = QueueData(queue.read_queues, queue.write_queues, new, queue.flags)
        return len(topics)

    def _end_baseline(self, begin: int) -> int:
        """What no entry has named since the beginning of the baseline was removed by a change that is not known."""
        self.seats = {seat: taken for seat, taken in self.seats.items() if taken.version >= begin}
        work = 0
        for broker, named in list(self.named.items()):
            work += len(named)
            for topic in [topic for topic, version in named.items() if version < begin]:
                del named[topic]
                self.queues[broker].pop(topic, None)
        return work


class TableDifference(NamedTuple):
    """What differs between two past tables. Each list is sorted by name."""

    seats: list[tuple[SeatName, PastSeat | None, PastSeat | None]]
    """Before and after; None: the seat was free."""
    queues: list[tuple[str, str, QueueData | None, QueueData | None]]
    """Topic, broker name, queues before and after."""


def compare_tables(before: PastTable, after: PastTable) -> TableDifference:
    seats = [
        (seat, former, now)
        for seat in sorted(before.seats.keys() | after.seats.keys())
        for former, now in [(before.seats.get(seat), after.seats.get(seat))]
        if (former and former[1:]) != (now and now[1:])
    ]
    queues = []
    for broker in before.queues.keys() | after.queues.keys():
        old, new = before.queues.get(broker, {}), after.queues.get(broker, {})
        changed = (topic for topic in old.keys() | new.keys() if old.get(topic) != new.get(topic))
        queues += [(topic, broker, old.get(topic), new.get(topic)) for topic in changed]
    return TableDifference(seats, sorted(queues, key=lambda row: (row[0], row[1])))


class PastTables:
    """Reads the history for what was."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._turn = asyncio.Lock()

    async def history_began_ms(self) -> int | None:
        """Time of the oldest entry that the history has."""
        first = await first_change(self._namespace)
        return first[0] if first else None

    async def heartbeat_gaps_of(self, broker: str, since_ms: int) -> list[SeatGaps]:
        return await read_heartbeat_gaps(self._namespace, broker, since_ms)

    async def tables_at(self, moments_ms: Sequence[int]) -> list[PastTable]:
        """The table at each of these instants, which are in ascending order. Raises PastUnknownError when the history
        does not reach back far enough.
        """
        async with self._turn:
            table = PastTable()
            position = await self._start_of(moments_ms[0])
            until = str(moments_ms[-1])
            async for (_, version), _ in read_backward(
                self._namespace, self._namespace.keys.changes, until, max_entries=1
            ):
                self._check_work(position, version)
            found: list[PastTable] = []
            work = 0
            while len(found) < len(moments_ms):
                changes = await read_changes(self._namespace, position, count=PAGE)
                for change in changes:
                    while len(found) < len(moments_ms) and change.ms > moments_ms[len(found)]:
                        found.append(table.copy())
                    if len(found) == len(moments_ms):
                        return found
                    work += table.apply(change) + 1
                    if work > STEP_ITEMS:
                        work = 0
                        await asyncio.sleep(0)
                if not changes:
                    found += [table.copy() for _ in range(len(moments_ms) - len(found))]
                else:
                    position = (changes[-1].ms, changes[-1].version)
            return found

    async def _start_of(self, moment_ms: int) -> tuple[int, int]:
        """The id after which the entries for a past table begin."""
        first = await first_change(self._namespace)
        if first is None or first[0] > moment_ms:
            raise PastUnknownError("The history begins after that time.", advice="Choose a later time.")
        baseline = await find_baseline(self._namespace, moment_ms, max_entries=MAX_ENTRIES)
        if baseline is not None and baseline.begin >= first[1]:
            ms, version = await find_id(self._namespace, baseline.begin, first, baseline.end)
            return ms, version - 1
        if first[1] == 1:
            return 0, 0
        raise PastUnknownError(
            "The history has no complete table before that time: its first entries were trimmed, and no baseline "
            "follows in time.",
            advice="Choose a later time. A baseline is written once a day, and by `POST /v1/changes/baseline`.",
        )

    @staticmethod
    def _check_work(position: tuple[int, int], last: int) -> None:
        if last - position[1] > MAX_ENTRIES:
            raise PastUnknownError(
                f"That time is {last - position[1]:,} changes after the last complete table; the console reads at most "
                f"{MAX_ENTRIES:,}.",
                advice="Ask the pipeline (`routebook pipeline route-at`), or choose a time soon after a baseline.",
            )
