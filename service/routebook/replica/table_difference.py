"""Which routes may differ between two whole tables, for replacing one by the other."""

from collections.abc import Iterator

from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.replica.table import Table, keys_that_differ, looks_alike


def changed_topics(old: Table, new: Table) -> Iterator[set[str]]:
    """Topics whose route may differ when `new` takes the place of `old`. In steps of one broker, so that a caller on
    the event loop can pause in between.
    """
    for broker in old.names() | new.names():
        yield _topics_changed_at(broker, old, new)
    yield _topics_with_other_filters(old, new) | _topics_with_other_filters(new, old)
    yield keys_that_differ(old.kv.get(ORDER_TOPIC_NAMESPACE, {}), new.kv.get(ORDER_TOPIC_NAMESPACE, {}))


def _topics_changed_at(broker: str, old: Table, new: Table) -> set[str]:
    before, after = old.queues_of(broker), new.queues_of(broker)
    if not looks_alike(old.groups.get(broker), new.groups.get(broker)):
        return {*before, *after, *old.mappings_of_broker(broker), *new.mappings_of_broker(broker)}
    changed = set() if before == after else keys_that_differ(before, after)
    return changed | keys_that_differ(old.mappings_of_broker(broker), new.mappings_of_broker(broker))


def _topics_with_other_filters(one: Table, other: Table) -> set[str]:
    """Topics of `one` at addresses whose filters are different in the other table."""
    addresses = {
        (instance.cluster, instance.address)
        for instance in one.instances.values()
        if instance.filters != other.filters_at(instance.cluster, instance.address)
    }
    if not addresses:
        return set()
    return {
        topic
        for name, group in one.groups.items()
        if any((group.cluster, address) in addresses for address in group.addresses.values())
        for topic in one.queues_of(name)
    }
