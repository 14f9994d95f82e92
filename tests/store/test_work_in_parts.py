"""What would block the store for too long in one script, and goes in parts: no part is lost, done twice or undone."""

import pytest

from routebook.model.topic import QueueData
from routebook.registry.restoring import ENTRIES_PER_CALL, write_back_queues
from routebook.store.book import Book
from routebook.store.kv import ImportReply, delete_kv, import_kv, put_kv
from routebook.store.reads import read_groups, read_kv
from routebook.store.statuses import Status
from routebook.store.topics import CARRIED_PER_PART, delete_topic
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import registration
from tests.support.scripts import kinds, newest

FILE, OTHER_FILE = "f" * 64, "0" * 64
MANY = 1300
"""Brokers: more than two parts of a deletion, and a set that a store does not hand over whole."""


async def take_over(book: Book, start: int, *keys: str, is_last: bool = False, file: str = FILE) -> ImportReply:
    part = [("ns", key, "theirs") for key in keys]
    return await import_kv(book, part, file=file, start=start, is_last=is_last, caller=CALLER)


async def values(book: Book) -> dict[str, str]:
    return dict(await read_kv(book, "ns"))


# -- Apache's key-value file


async def test_apaches_file_is_taken_over_once(book: Book) -> None:
    assert await take_over(book, 0, "k", is_last=True) == ImportReply(Status.DONE, 1, 1)
    await delete_kv(book, "ns", "k", caller=CALLER)
    assert (await take_over(book, 0, "k", is_last=True)).status is Status.UNCHANGED
    assert (await take_over(book, 0, "k", is_last=True, file=OTHER_FILE)).status is Status.UNCHANGED
    assert await values(book) == {}


async def test_apaches_file_never_covers_what_the_store_holds(book: Book) -> None:
    await put_kv(book, "ns", "k", "ours", caller=CALLER)
    assert (await take_over(book, 0, "k", is_last=True)).status is Status.UNCHANGED
    assert await values(book) == {"k": "ours"}


async def test_a_file_begun_is_continued_where_it_ended(book: Book) -> None:
    assert await take_over(book, 0, "a", "b") == ImportReply(Status.DONE, 2, 2)
    assert await take_over(book, 0, "a", "b") == ImportReply(Status.STALE, 2, 0)
    assert await take_over(book, 2, "c", is_last=True) == ImportReply(Status.DONE, 3, 1)
    assert await values(book) == dict.fromkeys("abc", "theirs")


async def test_what_was_deleted_or_put_since_the_first_part_stays_so(book: Book) -> None:
    await take_over(book, 0, "a", "b")
    await delete_kv(book, "ns", "a", caller=CALLER)
    await put_kv(book, "ns", "c", "ours", caller=CALLER)
    assert await take_over(book, 2, "c", "d", is_last=True) == ImportReply(Status.DONE, 4, 1)
    assert await values(book) == {"b": "theirs", "c": "ours", "d": "theirs"}


async def test_a_later_start_with_another_file_takes_over(book: Book) -> None:
    await take_over(book, 0, "a")
    assert (await take_over(book, 1, "x", file=OTHER_FILE)).status is Status.UNCHANGED
    assert await take_over(book, 0, "x", file=OTHER_FILE) == ImportReply(Status.DONE, 1, 1)
    assert (await take_over(book, 1, "b")).status is Status.UNCHANGED
    assert await values(book) == {"a": "theirs", "x": "theirs"}


async def test_a_store_emptied_in_between_is_given_the_file_from_its_beginning(book: Book) -> None:
    await take_over(book, 0, "a")
    await book.client.call("DEL", book.keys.meta, book.keys.table("kv"), book.keys.of("kv", "ns"))
    assert await take_over(book, 1, "b") == ImportReply(Status.STALE, 0, 0)


# -- topics that came from register-topic


def by_request(count: int) -> dict[str, QueueData]:
    return {f"topic-{n:05}": QueueData(by_request=True) for n in range(count)}


async def revision_of(book: Book) -> int:
    group = (await read_groups(book, {"broker-a": frozenset()}))["broker-a"].group
    assert group
    return group.revision


async def test_many_lost_topics_come_back_in_parts(book: Book) -> None:
    await PlainWorker(book).register(registration())
    lost, revision = by_request(2 * ENTRIES_PER_CALL + 1), await revision_of(book)
    assert await write_back_queues(book, "broker-a", lost, revision=revision, caller=CALLER) == len(lost)
    image = (await read_groups(book, {"broker-a": None}))["broker-a"]
    assert image.queues.items() >= lost.items()
    assert await write_back_queues(book, "broker-a", lost, revision=await revision_of(book), caller=CALLER) == 0


async def test_the_parts_end_when_somebody_else_changes_the_group(book: Book) -> None:
    """A topic of the next part may just have been deleted."""
    await PlainWorker(book).register(registration())
    lost, revision = by_request(ENTRIES_PER_CALL + 1), await revision_of(book)
    deleted = list(lost)[-1]

    class Interrupted(Book):
        async def run(self, script: str, *args: str | int) -> list[object]:
            reply = await book.run(script, *args)
            await delete_topic(book, deleted, caller=CALLER, carried_by={"broker-a": "east"})
            return reply

    interrupted = Interrupted(book.client, book.keys, book.scripts)
    assert await write_back_queues(interrupted, "broker-a", lost, revision=revision, caller=CALLER) == ENTRIES_PER_CALL
    assert deleted not in (await read_groups(book, {"broker-a": None}))["broker-a"].queues


# -- a topic that very many brokers have


async def have_topic(book: Book, cluster: str, brokers: list[str]) -> None:
    """Straight into the tables: so many registrations take long."""
    await book.client.call("SADD", book.keys.table("clusters"), cluster)
    await book.client.call("SADD", book.keys.of("cluster", cluster), *brokers)
    packed = QueueData().pack()
    await book.client.pipeline([("HSET", book.keys.of("queues", broker), "orders", packed) for broker in brokers])


async def holders(book: Book, brokers: list[str]) -> list[str]:
    found = await book.client.pipeline([("EXISTS", book.keys.of("queues", broker)) for broker in brokers])
    return [broker for broker, there in zip(brokers, found, strict=True) if there]


@pytest.fixture
async def brokers(book: Book) -> dict[str, list[str]]:
    listed = {
        "east": [f"east-{n}" for n in range(MANY)],
        "north": ["north-0"],
        "west": [f"west-{n}" for n in range(MANY)],
    }
    for cluster, names in listed.items():
        await have_topic(book, cluster, names)
    return listed


async def test_a_topic_of_very_many_brokers_is_deleted_from_all(book: Book, brokers: dict[str, list[str]]) -> None:
    everyone = [broker for names in brokers.values() for broker in names]
    reply = await delete_topic(book, "orders", caller=CALLER)
    assert (reply.status, reply.count) == (Status.DONE, len(everyone))
    assert await holders(book, everyone) == []
    assert len(await kinds(book)) == len(everyone) == reply.version
    assert (await delete_topic(book, "orders", caller=CALLER)).status is Status.UNCHANGED


async def test_a_deletion_in_one_cluster_leaves_the_others(book: Book, brokers: dict[str, list[str]]) -> None:
    assert (await delete_topic(book, "orders", caller=CALLER, cluster="west")).count == MANY
    assert await holders(book, brokers["west"]) == []
    assert await holders(book, brokers["east"] + brokers["north"]) == brokers["east"] + brokers["north"]


async def test_very_many_carried_entries_are_told_once_each(book: Book, brokers: dict[str, list[str]]) -> None:
    carried = {f"lost-{n}": "north" for n in range(2 * CARRIED_PER_PART + 1)}
    assert (await delete_topic(book, "orders", caller=CALLER, cluster="north", carried_by=carried)).count == (
        len(carried) + 1
    )
    assert len(await kinds(book)) == len(carried) + 1
    assert (await newest(book)).broker == "north-0"


async def test_a_cluster_that_goes_in_between_ends_nothing(book: Book, brokers: dict[str, list[str]]) -> None:
    first = await book.run("delete_topic", '"actor":"test","source":""', "orders", "", "")
    place = bytes(first[3]).decode()
    assert place.endswith(" east")
    await book.client.call("SREM", book.keys.table("clusters"), "east")
    removed = 0
    while place:
        reply = await book.run("delete_topic", '"actor":"test","source":""', "orders", "", place)
        removed, place = removed + int(reply[2]), bytes(reply[3]).decode()
    assert removed == MANY + 1
