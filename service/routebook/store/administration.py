"""register_topic, delete_topic, set_write_permission: what operators do to topics.

put_kv, delete_kv, import_kv, set_setting: key-values and run-time settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from routebook.model.names import Caller
from routebook.model.topic import QueueData
from routebook.store.namespace import CountedOutcome, Namespace, Outcome, Status, status_of, text
from routebook.store.packing import pack_caller, queue_item, sha256_of
from routebook.store.staging import AT_ONCE, STAGING_ATTEMPTS, stage_permissions

CARRIED_PER_PART: Final = 250
"""As many as one part of `delete_topic` looks at."""


def topic_entries(topic: str, queues: Mapping[str, QueueData]) -> list[str]:
    """(broker, packed, item) for each broker, marked as coming from register-topic."""
    return [
        part
        for broker, queue in queues.items()
        for part in (broker, replace(queue, by_request=True).pack(), queue_item(topic, queue))
    ]


async def register_topic(
    namespace: Namespace, topic: str, queues: Mapping[str, QueueData], *, caller: Caller
) -> CountedOutcome:
    return CountedOutcome.of(
        await namespace.run("register_topic", pack_caller(caller), topic, *topic_entries(topic, queues))
    )


async def delete_topic(
    namespace: Namespace, topic: str, *, caller: Caller, cluster: str = "", carried_by: Mapping[str, str] | None = None
) -> CountedOutcome:
    """`carried_by`: brokers whose entry workers still show though the store has lost it, with their clusters.

    One step with up to some hundred brokers. With more, parts: each is a change of its own, and the topic is gone with
    the last one.
    """
    carried, removed, place = list((carried_by or {}).items()), 0, ""
    while True:
        part, carried = carried[:CARRIED_PER_PART], carried[CARRIED_PER_PART:]
        named = chain.from_iterable(part)
        reply = await namespace.run("delete_topic", pack_caller(caller), topic, cluster, place, *named)
        removed += int(reply[2])
        place = text(reply[3])
        if not part and not place:
            return CountedOutcome(Status.DONE if removed else Status.UNCHANGED, int(reply[1]), removed)


async def set_write_permission(namespace: Namespace, broker: str, *, writable: bool, caller: Caller) -> CountedOutcome:
    """The count is of the broker's topics, changed or not."""
    staged, attempts = "", 0
    while True:
        outcome = CountedOutcome.of(
            await namespace.run("set_write_permission", pack_caller(caller), broker, int(writable), staged)
        )
        if outcome.status is not Status.STALE:
            return outcome
        staged, attempts = AT_ONCE, attempts + 1
        if attempts <= STAGING_ATTEMPTS:
            staged = await stage_permissions(namespace, broker, "set" if writable else "clear-write")


async def put_kv(namespace: Namespace, kv_namespace: str, key: str, value: str, *, caller: Caller) -> Outcome:
    return Outcome.of(await namespace.run("put_kv", pack_caller(caller), kv_namespace, key, value, sha256_of(value)))


async def delete_kv(
    namespace: Namespace, kv_namespace: str, key: str, *, caller: Caller, carried: bool = False
) -> Outcome:
    return Outcome.of(await namespace.run("delete_kv", pack_caller(caller), kv_namespace, key, int(carried)))


@dataclass(frozen=True, slots=True)
class ImportReply:
    """DONE: the part was taken; STALE: it was not; of both `go_on_from` says which entry of the file is next."""

    status: Status
    go_on_from: int
    written: int


async def import_kv(
    namespace: Namespace, part: Sequence[tuple[str, str, str]], *, file: str, start: int, is_last: bool, caller: Caller
) -> ImportReply:
    """(kv_namespace, key, value): the entries from `start` on of the file whose digest is `file`."""
    entries = [word for kv_namespace, key, value in part for word in (kv_namespace, key, value, sha256_of(value))]
    reply = await namespace.run("import_kv", pack_caller(caller), file, start, int(is_last), *entries)
    return ImportReply(status_of(reply), int(reply[2]), int(reply[3]))


async def set_setting(namespace: Namespace, key: str, value: str, shown: str, *, caller: Caller) -> Outcome:
    """`shown` is what the history may say of the value: secrets masked."""
    return Outcome.of(await namespace.run("set_setting", pack_caller(caller), key, value, shown))
