"""What differs between two whole tables: which routes change when one takes the other's place."""

from collections.abc import Iterator, Mapping

from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.replica.table import Table, looks_alike


def changed_topics(old: Table, new: Table) -> Iterator[set[str]]:
    """Topics whose route may differ, in steps of one broker, so that a caller on the event loop can pause
    in between.
    """
    for broker in old.names() | new.names():
        yield _topics_changed_at(broker, old, new)
    yield _filter_topics(old, new) | _filter_topics(new, old)
    old_order = old.kv.get(ORDER_TOPIC_NAMESPACE, {})
    yield _keys_that_differ(old_order, new.kv.get(ORDER_TOPIC_NAMESPACE, {}))


def _topics_changed_at(broker: str, old: Table, new: Table) -> set[str]:
    before, after = old.queues_of(broker), new.queues_of(broker)
    if not looks_alike(old.groups.get(broker), new.groups.get(broker)):
        return {*before, *after, *old.mappings_of_broker(broker), *new.mappings_of_broker(broker)}
    changed = set() if before == after else _keys_that_differ(before, after)
    return changed | _keys_that_differ(old.mappings_of_broker(broker), new.mappings_of_broker(broker))


def _keys_that_differ(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def _filter_topics(one: Table, other: Table) -> set[str]:
    """Topics at addresses whose filters are not the same in the other table."""
    differing = {
        (instance.cluster, instance.address)
        for instance in one.instances.values()
        if instance.filters != other.filters_at(instance.cluster, instance.address)
    }
    if not differing:
        return set()
    return {
        topic
        for name, group in one.groups.items()
        if any((group.cluster, address) in differing for address in group.addresses.values())
        for topic in one.queues_of(name)
    }
