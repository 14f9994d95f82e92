"""What a batch of changes names, read anew from the store. There is no second copy of any rule here: an entry
says where to look, the store says what is so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from routebook.model.broker import Instance
from routebook.replica.table import Table
from routebook.store.changes import BASELINE_KINDS, KINDS, Change
from routebook.store.namespace import Namespace
from routebook.store.reads import (
    GroupImage,
    read_groups,
    read_instances,
    read_kv,
    read_kv_namespaces,
    read_settings,
)

_GROUPLESS: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Named:
    """The things that changes name."""

    groups: dict[str, frozenset[str] | None] = field(default_factory=dict)
    """Broker → topics to read; None for all."""
    members: set[str] = field(default_factory=set)
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
        self.members.update(change.members)
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
        for member, instance in self.instances.items():
            changed |= table.apply_instance(member, instance)
        for kv_namespace, values in self.kv.items():
            changed |= table.apply_kv(kv_namespace, values)
        if self.settings is not None:
            table.apply_settings(self.settings)
        return changed


async def reread(namespace: Namespace, changes: Sequence[Change]) -> Reread:
    named = Named.by(changes)
    return Reread(
        groups=await _read_groups_whole(namespace, named.groups, changes[-1].version),
        instances=await read_instances(namespace, sorted(named.members)),
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
