"""copy_queues, stage_queues: large queue tables are built out of sight, so that no script blocks the store for long.

The script that puts a staged table in place checks that it is complete, and that the group has not changed since. So no
reader ever sees half of a change.
"""

import secrets
from collections.abc import Generator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from routebook.model.broker import QueueData, parts_of
from routebook.store.namespace import (
    Namespace,
    QueueChange,
    Status,
    pack_queues,
    queue_chunks,
    queues_put_by,
    status_of,
    text,
)

TOPICS_PER_STAGE: Final = 4000

STAGING_ATTEMPTS: Final = 3
"""How often a change of permissions is staged again because its group changed meanwhile. After that, one script changes
all of them, however long it blocks the store.
"""

MAX_FORMER_PERMISSIONS: Final = 1000
"""At most this many fit into an entry of the history; real fleets have three."""

AT_ONCE: Final = "-"
"""In place of a staged table: change the entries in one script."""

PermissionRule = Literal["set", "clear-write"]


class StagedTable(NamedTuple):
    """A staged table and the queue items of its history. When they have expired, the counts no longer match, and the
    next script notices it.
    """

    name: str
    entries: int = 0
    chunks: int = 0


NOT_STAGED: Final = StagedTable("")

_Result = TypeVar("_Result")


class RunSteps(Protocol):
    """Runs a long computation, in steps that let other work pass, and returns its result."""

    async def __call__(self, steps: Generator[None, None, _Result], /) -> _Result: ...


async def stage_changes(
    namespace: Namespace,
    broker: str,
    changes: Sequence[QueueChange],
    known: Mapping[str, QueueData],
    *,
    is_whole: bool,
    run_steps: RunSteps,
) -> StagedTable | None:
    """The group's table as it is now, with these changes applied. None: it expired meanwhile.

    `known`: what the changes were compared with, for the history.
    `is_whole`: what the changes put is the whole table afterwards, so nothing has to be copied.
    """
    staged = StagedTable(secrets.token_hex(8))
    if not is_whole:
        copy = await _copy_queues(namespace, broker, "")
        if copy is None:
            return None
        staged = copy.table
    for kind, queues in changes:
        for items in parts_of(queues.items(), TOPICS_PER_STAGE):
            puts, drops, chunks = await run_steps(_pack_part((kind, dict(items)), known, is_whole=is_whole))
            arguments: list[str | int] = [staged.name, staged.entries, staged.chunks, len(puts) // 2, len(drops)]
            reply = await namespace.run("stage_queues", *arguments, *puts, *drops, *chunks)
            if status_of(reply) is Status.UNKNOWN:
                return None
            staged = StagedTable(staged.name, int(reply[2]), int(reply[3]))
    return staged


def _pack_part(
    change: QueueChange, known: Mapping[str, QueueData], *, is_whole: bool
) -> Generator[None, None, tuple[list[str], list[str], list[str]]]:
    """Entries to put, topics to remove, and chunks for the history, as `stage_queues` takes them. The first step does
    nothing, so that of many registrations that arrive at once, one at a time is packed.
    """
    yield
    puts = pack_queues(queues_put_by(change))
    drops = [] if puts or is_whole else list(change[1])
    yield
    return puts, drops, queue_chunks(change, known)


async def stage_permissions(namespace: Namespace, broker: str, rule: PermissionRule) -> str:
    """The group's table with that rule applied, as scripts take it: `<name> <revision> <entries> <changed> <former
    permissions>`. Empty: it expired meanwhile.
    """
    copy = await _copy_queues(namespace, broker, rule)
    if copy is None:
        return ""
    former = ",".join(map(str, sorted(copy.former)[:MAX_FORMER_PERMISSIONS]))
    return f"{copy.table.name} {copy.revision} {copy.table.entries} {copy.changed} {former}"


@dataclass(frozen=True, slots=True)
class _Copy:
    table: StagedTable
    revision: str
    """The group's revision before the first page."""
    changed: int
    """Number of entries that the rule changed."""
    former: Set[int]
    """The permissions that these had."""


async def _copy_queues(namespace: Namespace, broker: str, rule: PermissionRule | Literal[""]) -> _Copy | None:
    table = StagedTable(secrets.token_hex(8))
    cursor, revision, changed = "0", "", 0
    former: set[int] = set()
    while True:
        reply = await namespace.run("copy_queues", table.name, table.entries, broker, cursor, rule)
        if status_of(reply) is Status.UNKNOWN:
            return None
        table, cursor = StagedTable(table.name, int(reply[2])), text(reply[3])
        revision = revision or text(reply[4])
        changed += int(reply[5])
        former.update(map(int, reply[6]))
        if cursor == "0":
            return _Copy(table, revision, changed, former)
