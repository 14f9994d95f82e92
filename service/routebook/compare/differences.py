"""Things as named fields, and two of them side by side.

What follows from something else that the same server says is left out; what deviates from it is kept.

How what two name servers say differs. Pure; the order of lists plays no part, and absent is the default.

One cause shall be one difference. So a group that is on one side only stands for its topics too; and what repeats the
cluster view or the queue data (groups inside of a route, member groups, listings) is held against its own server first:
only what deviates there is compared.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from routebook.compare.collecting import Said
from routebook.model.broker import BrokerGroup, TopicRoute
from routebook.model.topic import FLAG_UNIT, FLAG_UNIT_SUBSCRIPTION, QueueData, TopicMapping
from routebook.protocol.command import RequestCode

Scalar = str | int | bool | tuple[str, ...] | None
Fields = Mapping[str, Scalar]
Value = TypeVar("Value")

_NOTHING: Final = (None, False, "", ())


@dataclass(frozen=True, slots=True)
class Difference:
    """`field` None: the thing is on one side only; there, all of it is shown, and the other side is None."""

    kind: str
    name: str
    field: str | None
    here: Scalar
    there: Scalar

    @property
    def thing(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def verdict(self) -> str:
        if self.field is not None:
            return "differs"
        return "only here" if self.there is None else "only there"


def compare_fields(kind: str, name: str, here: Fields | None, there: Fields | None) -> Iterator[Difference]:
    """None: not there at all."""
    if here is None or there is None:
        if here is not there:
            yield Difference(kind, name, None, _all_of(here), _all_of(there))
        return
    for field in sorted(here.keys() | there.keys()):
        one, other = here.get(field), there.get(field)
        if one != other and not (one in _NOTHING and other in _NOTHING):
            yield Difference(kind, name, field, one, other)


def compare_things(
    kind: str, here: Mapping[str, Value], there: Mapping[str, Value], fields: Callable[[Value], Fields]
) -> Iterator[Difference]:
    """By name."""
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
    return {**asdict(mapping), "current_ids": ids}


def value_field(value: str) -> Fields:
    return {"value": value}


def _all_of(fields: Fields | None) -> str | None:
    if fields is None:
        return None
    texts = (f"{field} {text_of(value)}" for field, value in fields.items() if value not in _NOTHING)
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
"""Those whose effect brokers and clients notice, with the default of a server that does not name one."""

_WANTED: Final = {
    int(RequestCode.GET_UNIT_TOPIC_LIST): (FLAG_UNIT, FLAG_UNIT),
    int(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST): (FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
    int(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST): (FLAG_UNIT | FLAG_UNIT_SUBSCRIPTION, FLAG_UNIT_SUBSCRIPTION),
}
"""Code -> the bits that count, and what they have to be."""


def deviating_groups(route: TopicRoute, said: Said) -> dict[str, BrokerGroup]:
    """Groups that a route shows otherwise than the cluster view does, as with an acting master."""
    return {group.name: group for group in route.groups if group != said.groups.get(group.name)}


def deviating_members(said: Said) -> dict[str, Mapping[int, str]]:
    groups, members = said.groups, said.members or {}
    return {name: found for name, found in members.items() if name in groups and found != groups[name].addresses}


def deviating_listing(code: int, said: Said) -> dict[str, str]:
    listed = said.listings[code]
    if code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS:
        may = must = {*said.clusters, *(name for names in said.clusters.values() for name in names)}
    else:
        must, may = _by_flags(code, said)
    return dict.fromkeys(must - listed, "not listed") | dict.fromkeys(listed - may, "listed")


def _by_flags(code: int, said: Said) -> tuple[set[str], set[str]]:
    """Topics that must be listed, and those that may be: the server looks at one entry, whichever comes first. Of
    topics that were not asked for, nothing is known.
    """
    mask, wanted = _WANTED[code]
    must, may = set(), {*said.listings[code]} - said.routes.keys()
    for topic, route in said.routes.items():
        fit = [queue.flags & mask == wanted for queue in route.queues.values()] if route else []
        if any(fit):
            may.add(topic)
            if all(fit):
                must.add(topic)
    return must, may


def settings_of(said: Said) -> dict[str, str]:
    named = said.settings or {}
    return {key: named.get(key, default) for key, default in SETTINGS.items()}


def find_differences(here: Said, there: Said) -> Iterator[Difference]:
    return _Comparison(here, there).all()


def differing_topics(here: Said, there: Said) -> set[str]:
    """Those whose routes have to be looked at again."""
    comparison = _Comparison(here, there)
    return {topic for topic in comparison.topics if next(comparison.of_topic(topic), None)}


class _Comparison:
    def __init__(self, here: Said, there: Said) -> None:
        self._here = here
        self._there = there
        self._alone = here.groups.keys() ^ there.groups.keys()
        """Groups on one side only: told once, with the number of their topics."""

    @property
    def topics(self) -> list[str]:
        return sorted(self._here.routes.keys() | self._there.routes.keys())

    def all(self) -> Iterator[Difference]:
        here, there = self._here, self._there
        yield from self._clusters()
        yield from self._groups()
        if here.members is not None and there.members is not None:
            yield from compare_things("members", deviating_members(here), deviating_members(there), address_fields)
        for topic in self.topics:
            yield from self.of_topic(topic)
        for code in sorted(here.listings.keys() & there.listings.keys()):
            deviations = (deviating_listing(code, here), deviating_listing(code, there))
            yield from compare_things(f"listing {code}", *deviations, value_field)
        for namespace in sorted(here.key_values.keys() & there.key_values.keys()):
            yield from compare_key_values(namespace, here.key_values[namespace], there.key_values[namespace])
        if here.settings is not None and there.settings is not None:
            yield from compare_things("setting", settings_of(here), settings_of(there), value_field)

    def of_topic(self, topic: str) -> Iterator[Difference]:
        one, other = self._here.routes.get(topic), self._there.routes.get(topic)
        if one is None or other is None:
            known = one or other
            if known is not None and not known.queues.keys() <= self._alone:
                yield from compare_fields("topic", topic, _where(one), _where(other))
            return
        order = (_order(one), _order(other))
        yield from compare_fields("topic", topic, *order)
        yield from compare_queues(topic, self._shared(one.queues), self._shared(other.queues))
        mappings = (self._shared(one.mappings), self._shared(other.mappings))
        yield from compare_things(f"mapping of {topic}", *mappings, mapping_fields)
        filters = (self._filters(one), self._filters(other))
        yield from compare_things(f"filters of {topic}", *filters, _filter_fields)
        groups = (self._shared(deviating_groups(one, self._here)), self._shared(deviating_groups(other, self._there)))
        yield from compare_things(f"route of {topic}", *groups, group_fields)

    def _clusters(self) -> Iterator[Difference]:
        for cluster in sorted(self._here.clusters.keys() | self._there.clusters.keys()):
            here, there = self._here.clusters.get(cluster, frozenset()), self._there.clusters.get(cluster, frozenset())
            names = (here ^ there) - self._alone
            for name in sorted(names):
                yield Difference("cluster", cluster, f"broker {name}", name in here or None, name in there or None)

    def _groups(self) -> Iterator[Difference]:
        topics = self._topics_of_the_alone()

        def fields(group: BrokerGroup) -> Fields:
            number = {"topics": topics[group.name]} if group.name in self._alone else {}
            return {**group_fields(group), **number}

        yield from compare_things("broker", self._here.groups, self._there.groups, fields)

    def _topics_of_the_alone(self) -> Counter[str]:
        if not self._alone:
            return Counter()
        routes = (route for side in (self._here, self._there) for route in side.routes.values() if route)
        return Counter(broker for route in routes for broker in route.queues if broker in self._alone)

    def _shared(self, by_broker: Mapping[str, Value]) -> dict[str, Value]:
        return {name: value for name, value in by_broker.items() if name not in self._alone}

    def _filters(self, route: TopicRoute) -> dict[str, tuple[str, ...]]:
        addresses = {
            address for group in route.groups if group.name in self._alone for address in group.addresses.values()
        }
        return {address: filters for address, filters in route.filters.items() if address not in addresses}


def compare_queues(topic: str, here: Mapping[str, QueueData], there: Mapping[str, QueueData]) -> Iterator[Difference]:
    """By broker name."""
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
    """By topic."""
    yield from compare_things(f"mapping @ {broker}", here, there, mapping_fields)


def things_of(differences: Iterable[Difference]) -> set[tuple[str, str]]:
    return {one.thing for one in differences}


def _where(route: TopicRoute | None) -> Fields | None:
    return None if route is None else {"on": tuple(route.queues)}


def _order(route: TopicRoute) -> Fields:
    return {"order configuration": route.order_conf}


def _filter_fields(filters: tuple[str, ...]) -> Fields:
    return {"servers": tuple(sorted(filters))}
