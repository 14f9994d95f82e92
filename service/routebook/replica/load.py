"""Reads from the store what a replica needs: the objects that changes refer to (`reread`), or the whole table (`load`).

An entry of the history says which objects changed; their state is read from the store. So no rule of a change has a
second implementation here. `load` reads the whole table in portions and then the objects that changed meanwhile: the
result is the same as if the history had been followed from the beginning.

`changed_topics` says which routes may differ between two whole tables, for replacing one by the other.
"""

import asyncio
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, Instance, parts_of
from routebook.replica.table import Table, Updates, finish, keys_that_differ, looks_alike
from routebook.store.history import BASELINE_KINDS, KINDS, Change, read_changes
from routebook.store.identities import read_identities
from routebook.store.namespace import Namespace
from routebook.store.reads import (
    ENTRIES_PER_PAGE,
    GroupImage,
    list_broker_names,
    list_mapped,
    list_members,
    read_groups,
    read_history_head,
    read_instances,
    read_kv,
    read_kv_namespaces,
    read_settings,
)
from routebook.store.workers import HistoryHead, open_namespace

ENTRIES_PER_READ: Final = 2_000
MAX_GROUPS_PER_READ: Final = 64
"""Small groups are read many at a time."""
INSTANCES_PER_READ: Final = 200
CHANGES_PER_READ: Final = 256
"""An entry has up to 256 KiB."""
MAX_TOPICS_NAMED: Final = ENTRIES_PER_PAGE
"""When more topics of a group have changed, all of it is read. That takes less time for each topic, because they need
not be named, and no script blocks the store for long, because the group comes in pages.
"""
CHANGES_PER_STEP: Final = 16
"""Changes whose references are collected in one step: up to 16,000 topics, which takes a millisecond."""

_Result = TypeVar("_Result")


async def in_steps(steps: Generator[None, None, _Result]) -> _Result:
    """Runs a generator on the event loop, and lets other work pass at each `yield`."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Position:
    """A version of one history of one store: where a table stands."""

    identity: str
    history: str
    ms: int
    version: int

    @classmethod
    def of(cls, head: HistoryHead) -> "Position":
        return cls(head.identity, head.history, head.ms, head.version)

    def after(self, change: Change) -> "Position":
        return Position(self.identity, self.history, change.ms, change.version)

    def is_same_history(self, head: HistoryHead) -> bool:
        return (self.identity, self.history) == (head.identity, head.history)


class GapError(Exception):
    """Entries of the history are missing after the last one that was applied."""


def check_contiguous(changes: Sequence[Change], position: Position) -> None:
    expected = position.version
    for change in changes:
        expected += 1
        if change.version != expected:
            raise GapError(f"version {expected} is missing, {change.version} is there")


@dataclass(slots=True)
class References:
    """Objects referenced by changes."""

    groups: dict[str, set[str] | None] = field(default_factory=dict)
    """Broker → topics to read; None for all of them."""
    instance_names: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    settings: bool = False
    identities: bool = False

    @classmethod
    def collect(cls, changes: Sequence[Change]) -> Generator[None, None, "References"]:
        references = cls()
        for number, change in enumerate(changes, 1):
            references._add(change)
            if number % CHANGES_PER_STEP == 0:
                yield
        return references

    def _add(self, change: Change) -> None:
        if change.kind in BASELINE_KINDS:
            return
        if change.broker is not None and self.groups.get(change.broker, ()) is not None:
            # A kind that only a later release knows may change anything of its group.
            self._add_group(change.broker, change.topics if change.kind in KINDS else None)
        for host in change.hosts:
            self._add_group(host, ())
        self.instance_names.update(change.instance_names)
        if "namespace" in change.fields:
            self.namespaces.add(change.fields["namespace"])
        self.settings |= change.kind == "settings-changed"
        self.identities |= change.kind == "identity-changed"

    def _add_group(self, broker: str, topics: Iterable[str] | None) -> None:
        known = self.groups.setdefault(broker, set())
        if topics is None:
            self.groups[broker] = None
        elif known is not None:
            known.update(topics)
            if len(known) > MAX_TOPICS_NAMED:
                self.groups[broker] = None


@dataclass(frozen=True, slots=True)
class Reread:
    """The state of all referenced objects."""

    groups: dict[str, GroupImage]
    instances: dict[str, Instance | None]
    kv: dict[str, dict[str, str] | None]
    settings: dict[str, str] | None
    identities: dict[str, str] | None

    def apply_to(self, table: Table, groups: Updates | None = None) -> set[str]:
        """Returns the topics whose route may have changed. `groups` is what `table.work_out` returned for the groups;
        without it, this step works it out too.
        """
        changed = table.put_in_place(finish(table.work_out(self.groups)) if groups is None else groups)
        for instance_name, instance in self.instances.items():
            changed |= table.apply_instance(instance_name, instance)
        for kv_namespace, values in self.kv.items():
            changed |= table.apply_kv(kv_namespace, values)
        if self.settings is not None:
            table.apply_settings(self.settings)
        if self.identities is not None:
            table.apply_identities(self.identities)
        return changed


async def reread(namespace: Namespace, changes: Sequence[Change]) -> Reread:
    references = await in_steps(References.collect(changes))
    return Reread(
        groups=await _read_whole_changes(namespace, references.groups, changes[-1].version),
        instances=await read_instances(namespace, sorted(references.instance_names)),
        kv=await _read_key_values(namespace, references.namespaces),
        settings=await read_settings(namespace) if references.settings else None,
        identities=await read_identities(namespace) if references.identities else None,
    )


async def _read_key_values(namespace: Namespace, names: Iterable[str]) -> dict[str, dict[str, str] | None]:
    """None for a key-value namespace that does not exist. One without keys exists."""
    wanted = sorted(names)
    known = set(await read_kv_namespaces(namespace)) if wanted else set()
    return {name: await read_kv(namespace, name) if name in known else None for name in wanted}


async def _read_whole_changes(
    namespace: Namespace, wanted: Mapping[str, Collection[str] | None], version: int
) -> dict[str, GroupImage]:
    """Reads groups so that no change is seen half.

    A group may have changed since `version`. Then the topics named so far are not all that the image has to contain, so
    the whole group is read again, as of one instant. The same holds for a group that is gone: its entry does not name
    the topics that went with it.
    """
    images = await read_groups(namespace, wanted)
    partial = {
        broker: None
        for broker, image in images.items()
        if not image.all_queues and (image.group is None or image.group.revision > version)
    }
    return {**images, **await read_groups(namespace, partial)}


async def load(namespace: Namespace) -> tuple[Table, Position]:
    head = await read_history_head(namespace)
    if head.needs_opening:
        head = await open_namespace(namespace)
    table = Table()
    await _load_instances(namespace, table)
    await _load_groups(namespace, table)
    for kv_namespace, values in (await _read_key_values(namespace, await read_kv_namespaces(namespace))).items():
        table.apply_kv(kv_namespace, values)
    table.apply_settings(await read_settings(namespace))
    table.apply_identities(await read_identities(namespace))
    return table, await _catch_up(namespace, table, Position.of(head))


async def _load_groups(namespace: Namespace, table: Table) -> None:
    names = {name for _, listed in await list_broker_names(namespace) for name in listed}
    # Also the groups that their instances name, which are there even if the lists of the clusters were deleted.
    names.update(instance.broker for instance in table.instances.values())
    remaining = sorted(names.union(await list_mapped(namespace)))
    size = 1
    while remaining:
        portion, remaining = remaining[:size], remaining[size:]
        images = await read_groups(namespace, dict.fromkeys(portion))
        for broker, image in images.items():
            table.put_in_place(await in_steps(table.work_out({broker: image})))
            await asyncio.sleep(0)
        # The groups of a fleet have similar sizes: the largest one here determines the size of the next portion.
        largest = max(len(image.queues) for image in images.values())
        size = min(MAX_GROUPS_PER_READ, 2 * size, max(1, ENTRIES_PER_READ // (largest + 1)))


async def _load_instances(namespace: Namespace, table: Table) -> None:
    for part in parts_of(await list_members(namespace), INSTANCES_PER_READ):
        for instance_name, instance in (await read_instances(namespace, part)).items():
            table.apply_instance(instance_name, instance)


async def _catch_up(namespace: Namespace, table: Table, position: Position) -> Position:
    while changes := await read_changes(
        namespace, (position.ms, position.version), count=CHANGES_PER_READ, block_ms=None
    ):
        check_contiguous(changes, position)
        read = await reread(namespace, changes)
        read.apply_to(table, await in_steps(table.work_out(read.groups)))
        position = position.after(changes[-1])
    return position


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
