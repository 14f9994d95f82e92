"""register_topic, delete_topic, set_write_permission: administration of topics.

put_kv, delete_kv, import_kv, set_setting, delete_setting: key-values and run-time settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec import structs

from routebook.errors import LimitError
from routebook.model.broker import QueueData
from routebook.model.names import Caller
from routebook.store.namespace import (
    CountedOutcome,
    Namespace,
    Outcome,
    Status,
    pack_caller,
    queue_item,
    sha256_of,
    status_of,
    text,
)
from routebook.store.staging import AT_ONCE, STAGING_ATTEMPTS, stage_permissions

CARRIED_PER_RUN: Final = 250
"""The number of brokers that one run of `delete_topic` handles."""


def topic_entries(topic: str, queues: Mapping[str, QueueData]) -> list[str]:
    """Broker, packed queue data and queue item of each broker, marked as registered by request."""
    return [
        part
        for broker, queue in queues.items()
        for part in (broker, structs.replace(queue, by_request=True).pack(), queue_item(topic, queue))
    ]


async def register_topic(
    namespace: Namespace, topic: str, queues: Mapping[str, QueueData], *, caller: Caller, max_topics: int = 0
) -> CountedOutcome:
    """`max_topics`: LIMITED if a group would have more; 0 for any number."""
    entries = topic_entries(topic, queues)
    reply = await namespace.run("register_topic", pack_caller(caller), topic, max_topics, *entries)
    if status_of(reply) is Status.LIMITED:
        return CountedOutcome(Status.LIMITED, int(reply[1]), 0)
    return CountedOutcome.of(reply)


async def remove_empty_groups(
    namespace: Namespace, lease: str, groups: Sequence[tuple[str, int]], *, caller: Caller
) -> CountedOutcome:
    """`groups`: name and revision of groups that have had no seat for a while."""
    words = [word for group in groups for word in group]
    return CountedOutcome.of(await namespace.run("remove_empty_groups", pack_caller(caller), lease, *words))


async def delete_topic(
    namespace: Namespace, topic: str, *, caller: Caller, cluster: str = "", carried_by: Mapping[str, str] | None = None
) -> CountedOutcome:
    """`carried_by`: brokers whose entry workers still show although the store has lost it, with their clusters.

    Up to about 250 brokers are one step. More are several steps, each a change of its own.
    """
    carried, removed, cursor = list((carried_by or {}).items()), 0, ""
    while True:
        part, carried = carried[:CARRIED_PER_RUN], carried[CARRIED_PER_RUN:]
        brokers = chain.from_iterable(part)
        reply = await namespace.run("delete_topic", pack_caller(caller), topic, cluster, cursor, *brokers)
        removed += int(reply[2])
        cursor = text(reply[3])
        if not part and not cursor:
            return CountedOutcome(Status.DONE if removed else Status.UNCHANGED, int(reply[1]), removed)


async def set_write_permission(namespace: Namespace, broker: str, *, writable: bool, caller: Caller) -> CountedOutcome:
    """The count is the number of the group's topics, changed or not."""
    staged, attempts = "", 0
    while True:
        outcome = CountedOutcome.of(
            await namespace.run(
                "set_write_permission", pack_caller(caller), broker, int(writable), caller.cause, staged
            )
        )
        if outcome.status is not Status.STALE:
            return outcome
        staged, attempts = AT_ONCE, attempts + 1
        if attempts <= STAGING_ATTEMPTS:
            staged = await stage_permissions(namespace, broker, "set" if writable else "clear-write")


async def put_kv(
    namespace: Namespace,
    kv_namespace: str,
    key: str,
    value: str,
    *,
    caller: Caller,
    max_count: int = 0,
    max_bytes: int = 0,
) -> Outcome:
    """`max_count` and `max_bytes` limit all key-values together; 0 is no limit."""
    reply = await namespace.run(
        "put_kv", pack_caller(caller), kv_namespace, key, value, sha256_of(value), max_count, max_bytes
    )
    if status_of(reply) is Status.LIMITED:
        exceeded = text(reply[2])
        limit = max_count if exceeded == "max_key_values" else max_bytes
        raise LimitError(f"Key {kv_namespace}/{key} needs more room", exceeded, limit)
    return Outcome.of(reply)


async def delete_kv(
    namespace: Namespace, kv_namespace: str, key: str, *, caller: Caller, carried: bool = False
) -> Outcome:
    return Outcome.of(await namespace.run("delete_kv", pack_caller(caller), kv_namespace, key, int(carried)))


@dataclass(frozen=True, slots=True)
class ImportReply:
    """DONE: the part was imported. STALE: it was not. In both cases `next_entry` is where the import continues."""

    status: Status
    next_entry: int
    written: int


async def import_kv(
    namespace: Namespace, part: Sequence[tuple[str, str, str]], *, file: str, start: int, is_last: bool, caller: Caller
) -> ImportReply:
    """`part`: namespace, key and value of the entries from `start` on, in the file whose digest is `file`."""
    entries = [word for kv_namespace, key, value in part for word in (kv_namespace, key, value, sha256_of(value))]
    reply = await namespace.run("import_kv", pack_caller(caller), file, start, int(is_last), *entries)
    return ImportReply(status_of(reply), int(reply[2]), int(reply[3]))


async def set_setting(namespace: Namespace, key: str, value: str, shown: str, *, caller: Caller) -> Outcome:
    """`shown` is the value as the history may show it: secrets are masked."""
    return Outcome.of(await namespace.run("set_setting", pack_caller(caller), key, value, shown))


async def delete_setting(
    namespace: Namespace, key: str, *, caller: Caller, shown: str = "", carried: bool = False
) -> Outcome:
    """`shown` replaces a value that the history may not show."""
    return Outcome.of(await namespace.run("delete_setting", pack_caller(caller), key, shown, int(carried)))
