"""What differs between two whole tables: which routes change when one takes the other's place.

What a replica holds: the store's table, the table shown to readers, and where in the history they stand.

In normal operation both are one object. Everything here is one synchronous step, or a generator of such steps
between which the event loop may serve readers: each step leaves what is shown consistent.
"""

from collections.abc import Iterator, Mapping, Sequence

from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.replica.load import Position, Reread
from routebook.replica.recovery import Recovery
from routebook.replica.table import Table, looks_alike
from routebook.store.history import Change


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


START = Position(identity="", history="", ms=0, version=0)


class Contents:
    def __init__(self) -> None:
        self.table = Table()
        self.shown = self.table
        self.position = START
        self.recovery: Recovery | None = None

    @property
    def is_complete(self) -> bool:
        return self.position != START

    def apply(self, changes: Sequence[Change], read: Reread) -> set[str]:
        """Topics whose shown route may have changed."""
        if self.recovery is None:
            changed = read.apply_to(self.table)
        else:
            changed = self._apply_in_recovery(self.recovery, changes, read)
        self.position = self.position.after(changes[-1])
        return changed

    def replace(self, table: Table, position: Position, window_ms: int) -> Iterator[set[str]]:
        """Take a newly loaded table. After the end of a history what was shown is carried over into the
        next.
        """
        same_history = (position.identity, position.history) == (
            self.position.identity,
            self.position.history,
        )
        if not self.is_complete or (same_history and self.recovery is None):
            yield from self._swap(table, position)
        else:
            yield from self._carry_over(table, Table() if not same_history else self.table, window_ms)
            self.position = position

    def end_recovery(self) -> Iterator[set[str]]:
        """Nothing is carried any more, from the step on in which the store's table is shown."""
        return self._swap(self.table, self.position)

    def _swap(self, table: Table, position: Position) -> Iterator[set[str]]:
        changed: set[str] = set()
        for topics in changed_topics(self.shown, table):
            changed |= topics
            yield set()
        self.table, self.shown, self.position = table, table, position
        self.recovery = None
        yield changed

    def _carry_over(self, table: Table, before: Table, window_ms: int) -> Iterator[set[str]]:
        if self.recovery is None or before is not self.table:
            self.recovery = Recovery(self.shown, window_ms)
        yield from self.recovery.rebase(before, table)
        self.table = table

    def _apply_in_recovery(self, recovery: Recovery, changes: Sequence[Change], read: Reread) -> set[str]:
        changed: set[str] = set()
        for change in changes:
            changed |= recovery.forget(change)
        table = self.table
        for broker, image in read.groups.items():
            before = table.image_of(broker, None if image.all_queues else image.queues)
            table.apply_group(broker, image)
            changed |= recovery.merge_group(broker, before, image)
        for instance_name, instance in read.instances.items():
            gone = table.instances.get(instance_name)
            table.apply_instance(instance_name, instance)
            changed |= recovery.merge_instance(instance_name, gone, instance)
        for namespace, values in read.kv.items():
            said = table.kv.get(namespace)
            table.apply_kv(namespace, values)
            changed |= recovery.merge_kv(namespace, said, values)
        if read.settings is not None:
            earlier = dict(table.settings)
            table.apply_settings(read.settings)
            recovery.merge_settings(earlier, read.settings)
        return changed
