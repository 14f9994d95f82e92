"""register_topic, delete_topic, set_write_permission: what operators do to topics."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from routebook.model.caller import Caller
from routebook.model.topic import QueueData
from routebook.store.namespace import CountedOutcome, Namespace
from routebook.store.packing import pack_caller, queue_item
from routebook.store.statuses import Status, text

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
    return CountedOutcome.of(await namespace.run("set_write_permission", pack_caller(caller), broker, int(writable)))
