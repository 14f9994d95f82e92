"""How two name servers differ, object by object and field by field. The order of lists is ignored, and an absent field
equals its default.

One cause gives one difference. A group that only one server has stands for its topics too. Some answers repeat the
cluster view or the queue data: groups inside a route, member groups, listings. These are first compared with the other
answers of the same server, and only what deviates from them is compared with the other server.

Objects that differ are read a second time, because a fleet changes in the meantime. Only what differs both times is
reported: a broker that registers between two requests makes no difference.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from msgspec import structs

from routebook.compare.collecting import (
    CollectOptions,
    ServerState,
    collect_lists,
    collect_member_groups,
    collect_routes,
    ignore_progress,
)
from routebook.model.broker import FLAG_UNIT, FLAG_UNIT_SUBSCRIPTION, BrokerGroup, QueueData, TopicMapping, TopicRoute
from routebook.protocol.frame import RequestCode
from routebook.remoting_client import NameServer

Scalar = str | int | bool | tuple[str, ...] | None
Fields = Mapping[str, Scalar]
Value = TypeVar("Value")

_EMPTY_VALUES: Final = (None, False, "", ())


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs. With `field` None, only one server has the object: its value is a text of all fields,
    and the other value is None.
    """

    kind: str
    name: str
    field: str | None
    here: Scalar
    there: Scalar

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def verdict(self) -> str:
        if self.field is not None:
            return "differs"
        return "only here" if self.there is None else "only there"


def compare_fields(kind: str, name: str, here: Fields | None, there: Fields | None) -> Iterator[Difference]:
    """None: the server does not have the object."""
    if here is None or there is None:
        if here is not there:
            yield Difference(kind, name, None, _all_of(here), _all_of(there))
        return
    for field in sorted(here.keys() | there.keys()):
        one, other = here.get(field), there.get(field)
        if one != other and not (one in _EMPTY_VALUES and other in _EMPTY_VALUES):
            yield Difference(kind, name, field, one, other)


def compare_objects(
    kind: str, here: Mapping[str, Value], there: Mapping[str, Value], fields: Callable[[Value], Fields]
) -> Iterator[Difference]:
    """Compares objects by name."""
    for name in sorted(here.keys() | there.keys()):
        one, other = here.get(name), there.get(name)
        if one != other:
            shown = (None if one is None else fields(one), None if other is None else fields(other))
            yield from compare_fields(kind, name, *shown)


def group_fields(group: BrokerGroup) -> Fields:
    flags = {"cluster": group.cluster, "zone": group.zone, "acting master": group.acting_master}
    return {**flags, **address_fields(group.addresses)}


def address_fields(addresses: Mapping[int, str]) -> Fields:
    return {f"address {broker_id}": address for broker_id, address in sorted(addresses.items())}


def queue_fields(queue: QueueData) -> Fields:
    return {"read": queue.read_queues, "write": queue.write_queues, "perm": queue.perm, "flags": queue.flags}


def mapping_fields(mapping: TopicMapping) -> Fields:
    ids = tuple(f"{logical}→{real}" for logical, real in mapping.current_ids)
    return {**structs.asdict(mapping), "current_ids": ids}


def value_field(value: str) -> Fields:
    return {"value": value}


def _all_of(fields: Fields | None) -> str | None:
    if fields is None:
        return None
    texts = (f"{field} {text_of(value)}" for field, value in fields.items() if value not in _EMPTY_VALUES)
    return ", ".join(texts) or "there"


def text_of(value: Scalar) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


SETTINGS: Final[Mapping[str, str]] = {
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "notifyMinBrokerIdChanged": "false",
    "needWaitForService": "false",
    "waitSecondsForService": "45",
    "deleteTopicWithBrokerRegistration": "false",
    "scanNotActiveBrokerInterval": "5000",
}
"""The settings that affect brokers and clients, with the default for a server that does not report one."""

_LISTING_FLAGS: Final = {
    int(RequestCode.GET_UNIT_TOPIC_LIST): (FLAG_UNIT, FLAG_UNIT),
    int(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST): (FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
    int(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST): (FLAG_UNIT | FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
}
"""Request code -> the bits of the queue flags that are checked, and the value that they must have."""


def deviating_groups(route: TopicRoute, state: ServerState) -> dict[str, BrokerGroup]:
    """Groups that differ between a route and the cluster view of the same server, as with an acting master."""
    return {group.name: group for group in route.groups if group != state.groups.get(group.name)}


def deviating_member_groups(state: ServerState) -> dict[str, Mapping[int, str]]:
    groups, member_groups = state.groups, state.member_groups or {}
    return {name: found for name, found in member_groups.items() if name in groups and found != groups[name].addresses}


def deviating_listing(code: int, state: ServerState) -> dict[str, str]:
    listed = state.listings[code]
    if code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS:
        may = must = {*state.clusters, *(name for names in state.clusters.values() for name in names)}
    else:
        must, may = _by_flags(code, state)
    return dict.fromkeys(must - listed, "not listed") | dict.fromkeys(listed - may, "listed")


def _by_flags(code: int, state: ServerState) -> tuple[set[str], set[str]]:
    """The topics that must be listed, and those that may be listed. The server checks only
    one queue entry of a topic, and which one is not defined. Topics whose route was not read may be listed.
    """
    mask, value = _LISTING_FLAGS[code]
    must, may = set(), {*state.listings[code]} - state.routes.keys()
    for topic, route in state.routes.items():
        matches = [queue.flags & mask == value for queue in route.queues.values()] if route else []
        if any(matches):
            may.add(topic)
            if all(matches):
                must.add(topic)
    return must, may


def settings_of(state: ServerState) -> dict[str, str]:
    named = state.settings or {}
    return {key: named.get(key, default) for key, default in SETTINGS.items()}


def find_differences(here: ServerState, there: ServerState) -> Iterator[Difference]:
    return _DifferenceFinder(here, there).all()


def differing_topics(here: ServerState, there: ServerState) -> set[str]:
    """Topics whose routes must be read again."""
    finder = _DifferenceFinder(here, there)
    return {topic for topic in finder.topics if next(finder.of_topic(topic), None)}


class _DifferenceFinder:
    def __init__(self, here: ServerState, there: ServerState) -> None:
        self._here = here
        self._there = there
        self._unshared_groups = here.groups.keys() ^ there.groups.keys()
        """Groups that only one server has: reported once, with the number of their topics."""

    @property
    def topics(self) -> list[str]:
        return sorted(self._here.routes.keys() | self._there.routes.keys())

    def all(self) -> Iterator[Difference]:
        here, there = self._here, self._there
        yield from self._clusters()
        yield from self._groups()
        if here.member_groups is not None and there.member_groups is not None:
            yield from compare_objects(
                "members", deviating_member_groups(here), deviating_member_groups(there), address_fields
            )
        for topic in self.topics:
            yield from self.of_topic(topic)
        for code in sorted(here.listings.keys() & there.listings.keys()):
            deviations = (deviating_listing(code, here), deviating_listing(code, there))
            yield from compare_objects(f"listing {code}", *deviations, value_field)
        for namespace in sorted(here.key_values.keys() & there.key_values.keys()):
            yield from compare_key_values(namespace, here.key_values[namespace], there.key_values[namespace])
        if here.settings is not None and there.settings is not None:
            yield from compare_objects("setting", settings_of(here), settings_of(there), value_field)

    def of_topic(self, topic: str) -> Iterator[Difference]:
        one, other = self._here.routes.get(topic), self._there.routes.get(topic)
        if one is None or other is None:
            known = one or other
            if known is not None and not known.queues.keys() <= self._unshared_groups:
                yield from compare_fields("topic", topic, _location_fields(one), _location_fields(other))
            return
        order = (_order_fields(one), _order_fields(other))
        yield from compare_fields("topic", topic, *order)
        yield from compare_queues(topic, self._shared(one.queues), self._shared(other.queues))
        mappings = (self._shared(one.mappings), self._shared(other.mappings))
        yield from compare_objects(f"mapping of {topic}", *mappings, mapping_fields)
        filters = (self._filters(one), self._filters(other))
        yield from compare_objects(f"filters of {topic}", *filters, _filter_fields)
        groups = (self._shared(deviating_groups(one, self._here)), self._shared(deviating_groups(other, self._there)))
        yield from compare_objects(f"route of {topic}", *groups, group_fields)

    def _clusters(self) -> Iterator[Difference]:
        for cluster in sorted(self._here.clusters.keys() | self._there.clusters.keys()):
            here, there = self._here.clusters.get(cluster, frozenset()), self._there.clusters.get(cluster, frozenset())
            names = (here ^ there) - self._unshared_groups
            for name in sorted(names):
                yield Difference("cluster", cluster, f"broker {name}", name in here or None, name in there or None)

    def _groups(self) -> Iterator[Difference]:
        topics = self._topics_of_unshared_groups()

        def fields(group: BrokerGroup) -> Fields:
            number = {"topics": topics[group.name]} if group.name in self._unshared_groups else {}
            return {**group_fields(group), **number}

        yield from compare_objects("broker", self._here.groups, self._there.groups, fields)

    def _topics_of_unshared_groups(self) -> Counter[str]:
        if not self._unshared_groups:
            return Counter()
        routes = (route for side in (self._here, self._there) for route in side.routes.values() if route)
        return Counter(broker for route in routes for broker in route.queues if broker in self._unshared_groups)

    def _shared(self, by_broker: Mapping[str, Value]) -> dict[str, Value]:
        return {name: value for name, value in by_broker.items() if name not in self._unshared_groups}

    def _filters(self, route: TopicRoute) -> dict[str, tuple[str, ...]]:
        addresses = {
            address
            for group in route.groups
            if group.name in self._unshared_groups
            for address in group.addresses.values()
        }
        return {address: filters for address, filters in route.filters.items() if address not in addresses}


def compare_queues(topic: str, here: Mapping[str, QueueData], there: Mapping[str, QueueData]) -> Iterator[Difference]:
    """Compares queue entries by broker name."""
    for broker in sorted(here.keys() | there.keys()):
        one, other = here.get(broker), there.get(broker)
        if one != other:
            fields = (queue_fields(one) if one else None, queue_fields(other) if other else None)
            yield from compare_fields("queues", f"{topic} @ {broker}", *fields)


def compare_key_values(namespace: str, here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Difference]:
    for key in sorted(here.keys() | there.keys()):
        one, other = here.get(key), there.get(key)
        fields = (None if one is None else value_field(one), None if other is None else value_field(other))
        yield from compare_fields("key-value", f"{namespace}/{key}", *fields)


def compare_mappings(
    broker: str, here: Mapping[str, TopicMapping], there: Mapping[str, TopicMapping]
) -> Iterator[Difference]:
    """Compares mappings by topic."""
    yield from compare_objects(f"mapping @ {broker}", here, there, mapping_fields)


def keys_of(differences: Iterable[Difference]) -> set[tuple[str, str]]:
    return {one.key for one in differences}


def _location_fields(route: TopicRoute | None) -> Fields | None:
    return None if route is None else {"on": tuple(route.queues)}


def _order_fields(route: TopicRoute) -> Fields:
    return {"order configuration": route.order_conf}


def _filter_fields(filters: tuple[str, ...]) -> Fields:
    return {"servers": tuple(sorted(filters))}


Progress = Callable[[str, int, int], None]
"""Called with (address, routes read, total)."""
First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    transient: int
    """Objects that differed only the first time."""
    here: ServerState
    there: ServerState

    @property
    def equal(self) -> bool:
        return not self.differences


def ignore_server_progress(address: str, done: int, total: int) -> None:
    del address, done, total


async def compare_servers(
    here: NameServer,
    there: NameServer,
    options: CollectOptions,
    *,
    recheck_after_s: float,
    progress: Progress = ignore_server_progress,
) -> Comparison:
    one, other = await _both(collect_lists(here, options), collect_lists(there, options))
    one, other = await _both(
        _with_routes(here, one, other, progress),
        _with_routes(there, other, one, progress),
    )
    one, other = await _both(collect_member_groups(here, one), collect_member_groups(there, other))
    first = keys_of(find_differences(one, other))
    if not first:
        return Comparison((), 0, one, other)
    await asyncio.sleep(recheck_after_s)
    named = {name for _, name in first} & (one.routes.keys() | other.routes.keys())
    topics = named | differing_topics(one, other)
    one, other = await _both(
        _read_again(here, options, one, topics),
        _read_again(there, options, other, topics),
    )
    remaining = tuple(found for found in find_differences(one, other) if found.key in first)
    return Comparison(remaining, len(first - keys_of(remaining)), one, other)


async def _with_routes(server: NameServer, state: ServerState, other: ServerState, progress: Progress) -> ServerState:
    """When a server does not list its topics, the routes of those that the other one lists are read."""
    topics = state.topics if state.topics is not None else other.topics or frozenset()

    def report(done: int, total: int) -> None:
        progress(server.address, done, total)

    return state.with_routes(await collect_routes(server, topics, report))


async def _read_again(
    server: NameServer, options: CollectOptions, before: ServerState, topics: set[str]
) -> ServerState:
    state = await collect_lists(server, options)
    routes = await collect_routes(server, topics, ignore_progress)
    state = state.with_routes({**before.routes, **routes})
    return (
        await collect_member_groups(server, state)
        if before.member_groups is not None
        else replace(state, declined=before.declined)
    )


async def _both(one: Awaitable[First], other: Awaitable[Second]) -> tuple[First, Second]:
    """When one fails, the other one is cancelled."""
    tasks = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
