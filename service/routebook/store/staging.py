"""copy_queues, stage_queues: large queue tables are built out of sight, so that no script blocks the store for long.

The script that puts a staged table in place checks that it is complete, and that the group has not changed since. So no
reader ever sees half of a change.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from routebook.model.broker import QueueData
from routebook.store.namespace import Namespace, Status, status_of, text
from routebook.store.packing import pack_queues

TOPICS_PER_STAGE: Final = 2000

STAGING_ATTEMPTS: Final = 3
"""How often a change of permissions is staged again because its group changed meanwhile. After that, one script changes
all of them, however long it blocks the store.
"""

AT_ONCE: Final = "-"
"""In place of a staged table: change the entries in one script."""

PermissionRule = Literal["set", "clear-write"]


@dataclass(frozen=True, slots=True)
class StagedTable:
    name: str
    entries: int
    """A staged table that expired meanwhile has another number, by which the scripts recognize it."""

    def after(self, reply: list[Any]) -> "StagedTable | None":
        """The table after a script added to it. None: it expired before."""
        return None if status_of(reply) is Status.UNKNOWN else StagedTable(self.name, int(reply[2]))


async def stage_difference(
    namespace: Namespace, broker: str, puts: Mapping[str, QueueData], drops: Iterable[str]
) -> StagedTable | None:
    """The group's table as it is now, with these topics put and those removed. None: it expired meanwhile."""
    copy = await _copy_queues(namespace, broker, "")
    table = copy.table if copy else None
    for part, removed in _parts(puts, drops):
        if table is None:
            return None
        reply = await namespace.run("stage_queues", table.name, table.entries, len(part), *pack_queues(part), *removed)
        table = table.after(reply)
    return table


async def stage_permissions(namespace: Namespace, broker: str, rule: PermissionRule) -> str:
    """The group's table with that rule applied, as scripts take it: `<name> <revision> <entries> <changed>`. Empty: it
    expired meanwhile.
    """
    copy = await _copy_queues(namespace, broker, rule)
    return f"{copy.table.name} {copy.revision} {copy.table.entries} {copy.changed}" if copy else ""


@dataclass(frozen=True, slots=True)
class _Copy:
    table: StagedTable
    revision: str
    """Of the group, before the first page."""
    changed: int
    """Number of entries that the rule changed."""


async def _copy_queues(namespace: Namespace, broker: str, rule: PermissionRule | Literal[""]) -> _Copy | None:
    table: StagedTable | None = StagedTable(secrets.token_hex(8), 0)
    cursor, revision, changed = "0", "", 0
    while table:
        reply = await namespace.run("copy_queues", table.name, table.entries, broker, cursor, rule)
        table, cursor = table.after(reply), text(reply[3])
        revision = revision or text(reply[4])
        changed += int(reply[5])
        if table and cursor == "0":
            return _Copy(table, revision, changed)
    return None


def _parts(puts: Mapping[str, QueueData], drops: Iterable[str]) -> Iterator[tuple[dict[str, QueueData], list[str]]]:
    """At most TOPICS_PER_STAGE topics each, first those to put, then those to remove."""
    to_put, to_drop = iter(puts.items()), iter(drops)
    while True:
        part = dict(islice(to_put, TOPICS_PER_STAGE))
        removed = list(islice(to_drop, TOPICS_PER_STAGE - len(part)))
        if not part and not removed:
            return
        yield part, removed
