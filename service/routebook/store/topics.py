"""register_topic, delete_topic, set_write_permission: what operators do to topics."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from routebook.model.caller import Caller
from routebook.model.topic import QueueData
from routebook.store.book import Book, CountedOutcome
from routebook.store.packing import pack_caller, queue_item


def topic_entries(topic: str, queues: Mapping[str, QueueData]) -> list[str]:
    """(broker, packed, item) for each broker, marked as coming from register-topic."""
    return [
        part
        for broker, queue in queues.items()
        for part in (broker, replace(queue, by_request=True).pack(), queue_item(topic, queue))
    ]


async def register_topic(book: Book, topic: str, queues: Mapping[str, QueueData], *, caller: Caller) -> CountedOutcome:
    return CountedOutcome.of(
        await book.run("register_topic", pack_caller(caller), topic, *topic_entries(topic, queues))
    )


async def delete_topic(
    book: Book, topic: str, *, caller: Caller, cluster: str = "", carried_by: Iterable[str] = ()
) -> CountedOutcome:
    """`carried_by`: brokers whose entry workers still show though the store has lost it."""
    return CountedOutcome.of(await book.run("delete_topic", pack_caller(caller), topic, cluster, *carried_by))


async def set_write_permission(book: Book, broker: str, *, writable: bool, caller: Caller) -> CountedOutcome:
    """The count is of the broker's topics, changed or not."""
    return CountedOutcome.of(await book.run("set_write_permission", pack_caller(caller), broker, int(writable)))
