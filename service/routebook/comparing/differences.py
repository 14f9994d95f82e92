"""How what two name servers say differs. Pure; the order of lists plays no part, and absent is the default.

One cause shall be one difference. So a group that is on one side only stands for its topics too; and what repeats the
cluster view or the queue data (groups inside of a route, member groups, listings) is held against its own server first:
only what deviates there is compared.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from routebook.comparing.fields import (
    Difference,
    Fields,
    address_fields,
    compare_fields,
    compare_things,
    group_fields,
    mapping_fields,
    queue_fields,
    value_field,
)
from routebook.comparing.said import Said
from routebook.comparing.unsurprising import deviating_groups, deviating_listing, deviating_members, settings_of
from routebook.model.broker import BrokerGroup
from routebook.model.route import TopicRoute
from routebook.model.topic import QueueData, TopicMapping

Value = TypeVar("Value")


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
