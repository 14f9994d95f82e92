"""What a batch of changes names, read anew from the store. There is no second copy of any rule here: an entry
says where to look, the store says what is so.

Loading everything anew: the heads first, then all of it in portions, then what has changed meanwhile. What
comes out is as consistent as if it had been followed from the beginning.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from routebook.model.broker import Instance
from routebook.replica.table import Table
from routebook.store.history import BASELINE_KINDS, KINDS, Change, read_changes
from routebook.store.namespace import Namespace
from routebook.store.reads import (
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

_GROUPLESS: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Named:
    """The things that changes name."""

    groups: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """Broker → topics to read; None for all."""
    instance_names: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    settings: bool = False

    @classmethod
    def by(cls, changes: Iterable[Change]) -> "Named":
        named = cls()
        for change in changes:
            named._add(change)
        return named

    def _add(self, change: Change) -> None:
        if change.kind in BASELINE_KINDS:
            return
        if change.broker is not None:
            # A kind of a later release may touch anything of its group.
            self._add_group(change.broker, change.topics if change.kind in KINDS else None)
        for host in change.hosts:
            self._add_group(host, _GROUPLESS)
        self.instance_names.update(change.instance_names)
        if "namespace" in change.fields:
            self.namespaces.add(change.fields["namespace"])
        self.settings |= change.kind == "settings-changed"

    def _add_group(self, broker: str, topics: frozenset[str] | None) -> None:
        known = self.groups.get(broker, _GROUPLESS)
        self.groups[broker] = None if known is None or topics is None else known | topics


@dataclass(frozen=True, slots=True)
class Reread:
    """The state of all that was named, ready to be applied in one step."""

    groups: dict[str, GroupImage]
    instances: dict[str, Instance | None]
    kv: dict[str, dict[str, str] | None]
    settings: dict[str, str] | None

    def apply_to(self, table: Table) -> set[str]:
        """The topics whose route may have changed."""
        changed: set[str] = set()
        for broker, image in self.groups.items():
            changed |= table.apply_group(broker, image)
        for instance_name, instance in self.instances.items():
            changed |= table.apply_instance(instance_name, instance)
        for kv_namespace, values in self.kv.items():
            changed |= table.apply_kv(kv_namespace, values)
        if self.settings is not None:
            table.apply_settings(self.settings)
        return changed


async def reread(namespace: Namespace, changes: Sequence[Change]) -> Reread:
    named = Named.by(changes)
    return Reread(
        groups=await _read_groups_whole(namespace, named.groups, changes[-1].version),
        instances=await read_instances(namespace, sorted(named.instance_names)),
        kv=await read_key_values(namespace, named.namespaces),
        settings=await read_settings(namespace) if named.settings else None,
    )


async def read_key_values(namespace: Namespace, namespaces: Iterable[str]) -> dict[str, dict[str, str] | None]:
    """None for a namespace that is not there; an emptied one is there."""
    wanted = sorted(namespaces)
    known = set(await read_kv_namespaces(namespace)) if wanted else set()
    return {name: await read_kv(namespace, name) if name in known else None for name in wanted}


async def _read_groups_whole(
    namespace: Namespace, wanted: dict[str, frozenset[str] | None], version: int
) -> dict[str, GroupImage]:
    """Never half of a change. A group may have moved on since `version`: then the topics that the entries
    so far name are not all that belongs to what we saw of it, and all of it is read at one instant. So is a
    group that is gone, since its entries do not name the topics that went with it.
    """
    images = await read_groups(namespace, wanted)
    partial = {
        broker: None
        for broker, image in images.items()
        if not image.all_queues and (image.group is None or image.group.revision > version)
    }
    return {**images, **await read_groups(namespace, partial)}


ENTRIES_PER_READ: Final = 2_000
MAX_GROUPS_PER_READ: Final = 64
"""Many small groups travel together; one with 10 000 topics alone holds up store and event loop for 20 ms."""
MEMBERS_PER_READ: Final = 200
CHANGES_PER_READ: Final = 256
"""An entry has up to 256 KiB."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Position:
    """Where in which history a table stands."""

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
    """Entries of the history are missing between what we have seen and what comes next."""


def check_contiguous(changes: Sequence[Change], position: Position) -> None:
    expected = position.version
    for change in changes:
        expected += 1
        if change.version != expected:
            raise GapError(f"version {expected} is missing, {change.version} is there")


async def load(namespace: Namespace) -> tuple[Table, Position]:
    head = await read_history_head(namespace)
    if head.needs_opening:
        head = await open_namespace(namespace)
    table = Table()
    await _load_groups(namespace, table)
    await _load_instances(namespace, table)
    for kv_namespace, values in (await read_key_values(namespace, await read_kv_namespaces(namespace))).items():
        table.apply_kv(kv_namespace, values)
    table.apply_settings(await read_settings(namespace))
    return table, await _catch_up(namespace, table, Position.of(head))


async def _load_groups(namespace: Namespace, table: Table) -> None:
    names = {name for _, listed in await list_broker_names(namespace) for name in listed}
    remaining = sorted(names.union(await list_mapped(namespace)))
    size = 1
    while remaining:
        portion, remaining = remaining[:size], remaining[size:]
        images = await read_groups(namespace, dict.fromkeys(portion))
        for broker, image in images.items():
            table.apply_group(broker, image)
            await asyncio.sleep(0)
        # Groups of one fleet are alike: the largest of these says how many of the next may be asked for at once.
        largest = max(len(image.queues) for image in images.values())
        size = min(MAX_GROUPS_PER_READ, 2 * size, max(1, ENTRIES_PER_READ // (largest + 1)))


async def _load_instances(namespace: Namespace, table: Table) -> None:
    for portion in _portions(await list_members(namespace), MEMBERS_PER_READ):
        for instance_name, instance in (await read_instances(namespace, portion)).items():
            table.apply_instance(instance_name, instance)


async def _catch_up(namespace: Namespace, table: Table, position: Position) -> Position:
    while changes := await read_changes(
        namespace, (position.ms, position.version), count=CHANGES_PER_READ, block_ms=None
    ):
        check_contiguous(changes, position)
        (await reread(namespace, changes)).apply_to(table)
        position = position.after(changes[-1])
    return position


def _portions(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    remaining = iter(items)
    while portion := list(islice(remaining, size)):
        yield portion
