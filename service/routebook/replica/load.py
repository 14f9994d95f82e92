"""Loading everything anew: the heads first, then all of it in portions, then what has changed meanwhile. What
comes out is as consistent as if it had been followed from the beginning.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from routebook.replica.reread import read_key_values, reread
from routebook.replica.table import Table
from routebook.store.changes import Change, read_changes
from routebook.store.namespace import Namespace
from routebook.store.presence import Heads, open_namespace
from routebook.store.reads import (
    list_broker_names,
    list_mapped,
    list_members,
    read_groups,
    read_heads,
    read_instances,
    read_kv_namespaces,
    read_settings,
)

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
    def of(cls, heads: Heads) -> "Position":
        return cls(heads.identity, heads.history, heads.ms, heads.version)

    def after(self, change: Change) -> "Position":
        return Position(self.identity, self.history, change.ms, change.version)

    def is_same_history(self, heads: Heads) -> bool:
        return (self.identity, self.history) == (heads.identity, heads.history)


class GapError(Exception):
    """Entries of the history are missing between what we have seen and what comes next."""


def check_contiguous(changes: Sequence[Change], position: Position) -> None:
    expected = position.version
    for change in changes:
        expected += 1
        if change.version != expected:
            raise GapError(f"version {expected} is missing, {change.version} is there")


async def load(namespace: Namespace) -> tuple[Table, Position]:
    heads = await read_heads(namespace)
    if not (heads.identity and heads.history):
        heads = await open_namespace(namespace)
    table = Table()
    await _load_groups(namespace, table)
    await _load_instances(namespace, table)
    for kv_namespace, values in (await read_key_values(namespace, await read_kv_namespaces(namespace))).items():
        table.apply_kv(kv_namespace, values)
    table.apply_settings(await read_settings(namespace))
    return table, await _catch_up(namespace, table, Position.of(heads))


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
        for member, instance in (await read_instances(namespace, portion)).items():
            table.apply_instance(member, instance)


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
