"""What the pages of the fleet show, as values: brokers, routes now and in the past, why a topic has none, and names
found by a search.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

from routebook.console.outages import Outage
from routebook.model.broker import MASTER_ID, PERM_READ, PERM_WRITE, BrokerGroup, Instance, QueueData, parts_of
from routebook.registry.past_tables import PastTable
from routebook.registry.reading import BrokerView
from routebook.registry.registry import Registry
from routebook.store.change_search import ChangeFilter, ChangesPage, FoundEntry
from routebook.store.history import SeatGaps
from routebook.store.reads import Presence

# -- brokers


@dataclass(frozen=True, slots=True)
class SeatRow:
    """One broker of a group."""

    broker_id: int
    address: str
    role: str
    instance: Instance | None
    presence: Presence | None
    """None when the store cannot be reached."""

    @property
    def health(self) -> str:
        return self.presence.health if self.presence else "unknown"


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: BrokerGroup
    clusters: Sequence[str]
    seats: Sequence[SeatRow]
    topics: int
    writable_topics: int
    faults: Sequence[str]

    @property
    def master(self) -> SeatRow | None:
        return next((seat for seat in self.seats if seat.broker_id == MASTER_ID), None)


async def group_rows(registry: Registry, names: Sequence[str]) -> list[GroupRow]:
    found = [view for name in names if (view := registry.find_broker(name)) is not None]
    presences = await registry.presences(found)
    return [_group_row(view, presences) for view in found]


def _group_row(view: BrokerView, presences: Mapping[str, Presence]) -> GroupRow:
    group = view.group
    seats = []
    for broker_id, address in sorted(group.addresses.items()):
        instance = view.instances.get(broker_id)
        presence = presences.get(instance.instance_name) if instance else None
        role = group.role_of(broker_id).replace("-", " ")
        seats.append(SeatRow(broker_id, address, role, instance, presence))
    return GroupRow(group, sorted(view.clusters), seats, view.topics, view.writable_topics, _group_faults(group))


def _role(broker_id: int) -> str:
    return "master" if broker_id == MASTER_ID else "slave"


def _group_faults(group: BrokerGroup) -> list[str]:
    if not group.addresses:
        return ["No broker of this group is registered."]
    if MASTER_ID not in group.addresses:
        return ["No master is registered: producers cannot send to this group."]
    return []


# -- topics


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list."""

    name: str
    groups: int
    read_queues: int
    write_queues: int
    perms: Sequence[int]
    """Each permission that one of its groups has."""


def topic_row(name: str, queues: Mapping[str, QueueData]) -> TopicRow:
    return TopicRow(
        name,
        len(queues),
        sum(queue.read_queues for queue in queues.values()),
        sum(queue.write_queues for queue in queues.values()),
        sorted({queue.perm for queue in queues.values()}),
    )


# -- the route of a topic

MAX_DRAWN: Final = 40
"""Groups in a picture; a table below it has all of them."""
MAX_CELLS: Final = 24
ROW_HEAD: Final = 62
SEAT_HEIGHT: Final = 18
GAP: Final = 14


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A topic on one broker group."""

    broker: str
    cluster: str
    zone: str | None
    queue: QueueData
    seats: Sequence[tuple[int, str, str]]
    """Broker id, address, role."""
    top: int = 0
    """Position in the picture."""
    height: int = 0

    @property
    def cells(self) -> Sequence[str]:
        """One for each queue: `rw`, `r`, `w` or `none`, by the numbers of queues and the permission."""
        queue = self.queue
        reads = queue.read_queues if queue.perm & PERM_READ else 0
        writes = queue.write_queues if queue.perm & PERM_WRITE else 0
        number = min(max(queue.read_queues, queue.write_queues), MAX_CELLS)
        return ["r" * (i < reads) + "w" * (i < writes) or "none" for i in range(number)]

    @property
    def hidden_cells(self) -> int:
        return max(self.queue.read_queues, self.queue.write_queues) - len(self.cells)

    @property
    def is_known(self) -> bool:
        """Whether any broker of the group is registered."""
        return bool(self.seats)


@dataclass(frozen=True, slots=True)
class RoutePicture:
    topic: str
    rows: Sequence[RouteRow]
    height: int
    faults: Sequence[str]

    @property
    def drawn(self) -> Sequence[RouteRow]:
        return self.rows[:MAX_DRAWN]


def picture_of(topic: str, queues: Mapping[str, QueueData], groups: Mapping[str, BrokerGroup | None]) -> RoutePicture:
    """`groups` as lookups return them: an acting master has the id 0."""
    rows: list[RouteRow] = []
    top = 0
    for broker, queue in sorted(queues.items()):
        group = groups.get(broker)
        seats = _route_seats(group) if group else []
        height = ROW_HEAD + SEAT_HEIGHT * max(len(seats), 1)
        cluster, zone = (group.cluster, group.zone) if group else ("", None)
        rows.append(RouteRow(broker, cluster, zone, queue, seats, top, height))
        top += height + GAP
    drawn = rows[:MAX_DRAWN]
    height = drawn[-1].top + drawn[-1].height + 2 if drawn else 0
    return RoutePicture(topic, rows, height, route_faults(rows))


def _route_seats(group: BrokerGroup) -> list[tuple[int, str, str]]:
    return [(broker_id, address, _role(broker_id)) for broker_id, address in sorted(group.addresses.items())]


def route_faults(rows: Iterable[RouteRow]) -> list[str]:
    """Why producers or consumers fail although the topic is in the table."""
    found = list(rows)
    faults = []
    if not any(row.is_known for row in found):
        faults.append("No route: the topic is in the table, but no broker that has it is registered.")
    elif not any(row.queue.is_writable and row.queue.write_queues for row in found if row.is_known):
        faults.append("Producers find no queue to write to: no group allows writing.")
    elif not any(
        row.queue.is_writable and any(broker_id == MASTER_ID for broker_id, _, _ in row.seats) for row in found
    ):
        faults.append("Producers find no master: every group that allows writing has lost its master.")
    for row in found:
        if row.is_known and all(broker_id != MASTER_ID for broker_id, _, _ in row.seats):
            faults.append(f"Group {row.broker} has no master.")
        if row.is_known and not row.queue.is_writable:
            faults.append(f"Group {row.broker} does not allow writing (permission {row.queue.perm}).")
    return faults[:20]


def current_picture(registry: Registry, topic: str) -> RoutePicture | None:
    """None when the table does not have the topic. Marks acting masters by comparison with the true ids."""
    view = registry.replica.view
    queues = view.brokers_of(topic)
    if not queues:
        return None
    route = registry.replica.route(topic)
    groups: dict[str, BrokerGroup | None] = {group.name: group for group in route.groups} if route else {}
    picture = picture_of(topic, queues, groups)
    rows = [_with_acting_masters(row, view.groups.get(row.broker)) for row in picture.rows]
    return RoutePicture(topic, rows, picture.height, picture.faults)


def _with_acting_masters(row: RouteRow, true: BrokerGroup | None) -> RouteRow:
    if true is None or MASTER_ID in true.addresses or not row.seats or row.seats[0][0] != MASTER_ID:
        return row
    acting = (MASTER_ID, row.seats[0][1], "acting master")
    return RouteRow(row.broker, row.cluster, row.zone, row.queue, [acting, *row.seats[1:]], row.top, row.height)


def past_picture(table: PastTable, topic: str) -> RoutePicture:
    queues = table.brokers_of(topic)
    return picture_of(topic, queues, {broker: table.group(broker) for broker in queues})


# -- why there is no route


@dataclass(frozen=True, slots=True)
class MissingRoute:
    """What the history knows about a topic that is not in the table."""

    reason: str
    entry: FoundEntry | None
    """The entry that took the topic away."""
    outages: Sequence[Outage]
    """Brokers that had the topic and are away."""
    searched_back_ms: int | None


async def explain_missing(registry: Registry, topic: str, outages: Sequence[Outage]) -> MissingRoute:
    page = await _last_entries(registry, ChangeFilter(topic=topic))
    searched = None if not page.has_more else page.cursor.change.ms
    for entry in page.entries:
        items = [item for item in entry.fields.get("queues", ()) if item["t"] == topic]
        if not items:
            continue
        broker = str(entry.fields.get("broker", ""))
        if any("x" in item for item in items):
            actor, source = entry.fields.get("actor", ""), entry.fields.get("source", "")
            who = f"{actor} from {source}" if source else str(actor)
            return MissingRoute(f"It was deleted from group {broker} by {who}.", entry, (), searched)
        removal = await _last_entries(registry, ChangeFilter(kinds=frozenset({"broker-removed"}), broker=broker))
        last = next((found for found in removal.entries if found.fields.get("group_removed")), None)
        if last is not None and last.id > entry.id:
            away = [outage for outage in outages if outage.seat[1] == broker and outage.back_ms is None]
            reason = f"Its last broker group, {broker}, has no broker any more; its topics were removed with it."
            return MissingRoute(reason, last, away, searched)
        return MissingRoute(f"Group {broker} was the last that named it.", entry, (), searched)
    return MissingRoute("No broker has registered it as far back as the history was searched.", None, (), searched)


async def _last_entries(registry: Registry, wanted: ChangeFilter) -> ChangesPage:
    """Reads on until something was found, within limits."""
    page = await registry.search_changes(wanted, newest_first=True, limit=20)
    for _ in range(3):
        if page.entries or not page.has_more:
            break
        page = await registry.search_changes(wanted, cursor=page.cursor, newest_first=True, limit=20)
    return page


@dataclass(frozen=True, slots=True)
class RouteFilter(ChangeFilter):
    """Changes that may have changed the route of a topic: those that name it, and those of its brokers' seats."""

    brokers: frozenset[str] = frozenset()

    def matches(self, fields: Mapping[str, Any]) -> bool:
        kind = fields["kind"]
        if kind in _GROUP_KINDS and fields.get("broker") in self.brokers:
            return kind != "broker-changed" or bool({"addr", "acting", "zone"} & set(fields.get("before", ())))
        return ChangeFilter.matches(self, fields)


_GROUP_KINDS: Final = frozenset(
    {"broker-registered", "broker-changed", "broker-removed", "group-changed", "write-permission"}
)

# -- heartbeat gaps


@dataclass(frozen=True, slots=True)
class GapChart:
    """Bars of the longest heartbeat gap of each minute, in a picture of 600 x 120."""

    bars: Sequence[tuple[float, float, float, SeatGaps]]
    """Position, height, share of the timeout, and the gaps."""
    top_ms: int
    timeout_ms: int

    @property
    def timeout_y(self) -> float:
        return 118 - self.timeout_ms / self.top_ms * 110


MINUTES: Final = 60


def gap_chart(gaps: Sequence[SeatGaps], timeout_ms: int, now_ms: int) -> GapChart:
    begin = now_ms - MINUTES * 60_000
    top_ms = max([timeout_ms, *(gap.max_ms for gap in gaps)]) or 1
    bars = [
        (
            max(0.0, (gap.to_ms - begin) / (MINUTES * 60_000) * 600 - 9),
            max(2.0, gap.max_ms / top_ms * 110),
            gap.max_ms / timeout_ms if timeout_ms else 0.0,
            gap,
        )
        for gap in gaps
    ]
    return GapChart(bars, top_ms, timeout_ms)


# -- the search for names


STEP_NAMES: Final = 2_000
MAX_OFFSET: Final = 10_000
"""The last result to which a list can be paged. One more letter in the search finds the others."""


@dataclass(frozen=True, slots=True)
class Found:
    names: Sequence[str]
    total: int
    """Number of names that contain the text."""


async def search_names(names: Collection[str], text: str, *, offset: int = 0, limit: int = 100) -> Found:
    """Names that begin with the text come first, then those that contain it, both in alphabetical order. Capital
    letters count only if the text has one.

    There may be 100,000 topics and more. An index would have to follow every change of the table. The search instead
    goes through all names in steps of some 0.3 ms, between which lookups are answered, and keeps only the best
    ones.
    """
    offset = min(offset, MAX_OFFSET)
    best: list[tuple[bool, str]] = []
    total = 0
    # A copy, since the table may change between two steps.
    for step in parts_of(tuple(names), STEP_NAMES):
        found = _ranked(step, text) if text else [(False, name) for name in step]
        total += len(found)
        best = nsmallest(offset + limit, best + found)
        await asyncio.sleep(0)
    return Found([name for _, name in best[offset:]], total)


def _ranked(names: Iterable[str], text: str) -> list[tuple[bool, str]]:
    """Those that contain the text, each with whether it is not at the beginning."""
    if text == text.lower():
        found = ((name.lower().find(text), name) for name in names)
    else:
        found = ((name.find(text), name) for name in names)
    return [(at > 0, name) for at, name in found if at >= 0]
