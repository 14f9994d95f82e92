"""Work that is done in parts so that it does not block the store: no part is lost, repeated or undone."""

import pytest

from routebook.background.restoring import ENTRIES_PER_CALL, write_back_queues
from routebook.model.broker import QueueData
from routebook.store.administration import CARRIED_PER_RUN, ImportReply, delete_kv, delete_topic, import_kv, put_kv
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups, read_kv
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import registration
from tests.support.scripts import kinds, newest

FILE, OTHER_FILE = "f" * 64, "0" * 64
MANY = 1300
"""Number of brokers: more than two parts of a deletion, and a set that the store returns in pages."""


async def take_over(
    namespace: Namespace, start: int, *keys: str, is_last: bool = False, file: str = FILE
) -> ImportReply:
    part = [("ns", key, "theirs") for key in keys]
    return await import_kv(namespace, part, file=file, start=start, is_last=is_last, caller=CALLER)


async def values(namespace: Namespace) -> dict[str, str]:
    return dict(await read_kv(namespace, "ns"))


# -- Apache's key-value file


async def test_apaches_file_is_imported_once(namespace: Namespace) -> None:
    assert await take_over(namespace, 0, "k", is_last=True) == ImportReply(Status.DONE, 1, 1)
    await delete_kv(namespace, "ns", "k", caller=CALLER)
    assert (await take_over(namespace, 0, "k", is_last=True)).status is Status.UNCHANGED
    assert (await take_over(namespace, 0, "k", is_last=True, file=OTHER_FILE)).status is Status.UNCHANGED
    assert await values(namespace) == {}


async def test_apaches_file_replaces_no_stored_value(namespace: Namespace) -> None:
    await put_kv(namespace, "ns", "k", "ours", caller=CALLER)
    assert (await take_over(namespace, 0, "k", is_last=True)).status is Status.UNCHANGED
    assert await values(namespace) == {"k": "ours"}


async def test_an_interrupted_import_continues_where_it_ended(namespace: Namespace) -> None:
    assert await take_over(namespace, 0, "a", "b") == ImportReply(Status.DONE, 2, 2)
    assert await take_over(namespace, 0, "a", "b") == ImportReply(Status.STALE, 2, 0)
    assert await take_over(namespace, 2, "c", is_last=True) == ImportReply(Status.DONE, 3, 1)
    assert await values(namespace) == dict.fromkeys("abc", "theirs")


async def test_an_import_keeps_changes_made_after_its_first_part(namespace: Namespace) -> None:
    await take_over(namespace, 0, "a", "b")
    await delete_kv(namespace, "ns", "a", caller=CALLER)
    await put_kv(namespace, "ns", "c", "ours", caller=CALLER)
    assert await take_over(namespace, 2, "c", "d", is_last=True) == ImportReply(Status.DONE, 4, 1)
    assert await values(namespace) == {"b": "theirs", "c": "ours", "d": "theirs"}


async def test_a_later_start_with_another_file_imports_that_one(namespace: Namespace) -> None:
    await take_over(namespace, 0, "a")
    assert (await take_over(namespace, 1, "x", file=OTHER_FILE)).status is Status.UNCHANGED
    assert await take_over(namespace, 0, "x", file=OTHER_FILE) == ImportReply(Status.DONE, 1, 1)
    assert (await take_over(namespace, 1, "b")).status is Status.UNCHANGED
    assert await values(namespace) == {"a": "theirs", "x": "theirs"}


async def test_an_import_into_an_emptied_store_starts_from_the_beginning(namespace: Namespace) -> None:
    await take_over(namespace, 0, "a")
    await namespace.client.call("DEL", namespace.keys.meta, namespace.keys.table("kv"), namespace.keys.of("kv", "ns"))
    assert await take_over(namespace, 1, "b") == ImportReply(Status.STALE, 0, 0)


# -- topics that came from register-topic


def by_request(count: int) -> dict[str, QueueData]:
    return {f"topic-{n:05}": QueueData(by_request=True) for n in range(count)}


async def revision_of(namespace: Namespace) -> int:
    group = (await read_groups(namespace, {"broker-a": frozenset()}))["broker-a"].group
    assert group
    return group.revision


async def test_many_lost_topics_are_restored_in_parts(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    lost, revision = by_request(2 * ENTRIES_PER_CALL + 1), await revision_of(namespace)
    assert await write_back_queues(namespace, "broker-a", lost, revision=revision, caller=CALLER) == len(lost)
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert image.queues.items() >= lost.items()
    assert (
        await write_back_queues(namespace, "broker-a", lost, revision=await revision_of(namespace), caller=CALLER) == 0
    )


async def test_restoring_ends_when_the_group_is_changed_meanwhile(namespace: Namespace) -> None:
    """A topic of the next part may have been deleted."""
    await PlainWorker(namespace).register(registration())
    lost, revision = by_request(ENTRIES_PER_CALL + 1), await revision_of(namespace)
    deleted = list(lost)[-1]

    class Interrupted(Namespace):
        async def run(self, script: str, *args: str | int, epoch: int | None = None) -> list[object]:
            reply = await namespace.run(script, *args, epoch=epoch)
            await delete_topic(namespace, deleted, caller=CALLER, carried_by={"broker-a": "east"})
            return reply

    interrupted = Interrupted(namespace.client, namespace.keys, namespace.scripts)
    assert await write_back_queues(interrupted, "broker-a", lost, revision=revision, caller=CALLER) == ENTRIES_PER_CALL
    assert deleted not in (await read_groups(namespace, {"broker-a": None}))["broker-a"].queues


# -- a topic that very many brokers have


async def have_topic(namespace: Namespace, cluster: str, brokers: list[str]) -> None:
    """Writes them straight into the store: that many registrations would take long."""
    await namespace.client.call("SADD", namespace.keys.table("clusters"), cluster)
    await namespace.client.call("SADD", namespace.keys.of("cluster", cluster), *brokers)
    packed = QueueData().pack()
    await namespace.client.pipeline(
        [("HSET", namespace.keys.of("queues", broker), "orders", packed) for broker in brokers]
    )


async def holders(namespace: Namespace, brokers: list[str]) -> list[str]:
    found = await namespace.client.pipeline([("EXISTS", namespace.keys.of("queues", broker)) for broker in brokers])
    return [broker for broker, there in zip(brokers, found, strict=True) if there]


@pytest.fixture
async def brokers(namespace: Namespace) -> dict[str, list[str]]:
    listed = {
        "east": [f"east-{n}" for n in range(MANY)],
        "north": ["north-0"],
        "west": [f"west-{n}" for n in range(MANY)],
    }
    for cluster, names in listed.items():
        await have_topic(namespace, cluster, names)
    return listed


async def test_a_topic_of_very_many_brokers_is_deleted_from_all(
    namespace: Namespace, brokers: dict[str, list[str]]
) -> None:
    everyone = [broker for names in brokers.values() for broker in names]
    reply = await delete_topic(namespace, "orders", caller=CALLER)
    assert (reply.status, reply.count) == (Status.DONE, len(everyone))
    assert await holders(namespace, everyone) == []
    assert len(await kinds(namespace)) == len(everyone) == reply.version
    assert (await delete_topic(namespace, "orders", caller=CALLER)).status is Status.UNCHANGED


async def test_a_deletion_in_one_cluster_leaves_the_others(namespace: Namespace, brokers: dict[str, list[str]]) -> None:
    assert (await delete_topic(namespace, "orders", caller=CALLER, cluster="west")).count == MANY
    assert await holders(namespace, brokers["west"]) == []
    assert await holders(namespace, brokers["east"] + brokers["north"]) == brokers["east"] + brokers["north"]


async def test_each_of_very_many_carried_entries_is_recorded_once(
    namespace: Namespace, brokers: dict[str, list[str]]
) -> None:
    carried = {f"lost-{n}": "north" for n in range(2 * CARRIED_PER_RUN + 1)}
    assert (await delete_topic(namespace, "orders", caller=CALLER, cluster="north", carried_by=carried)).count == (
        len(carried) + 1
    )
    assert len(await kinds(namespace)) == len(carried) + 1
    assert (await newest(namespace)).broker == "north-0"


async def test_a_cluster_that_is_removed_in_between_does_not_end_the_deletion(
    namespace: Namespace, brokers: dict[str, list[str]]
) -> None:
    first = await namespace.run("delete_topic", '"actor":"test","source":""', "orders", "", "")
    place = bytes(first[3]).decode()
    assert place.endswith(" east")
    await namespace.client.call("SREM", namespace.keys.table("clusters"), "east")
    removed = 0
    while place:
        reply = await namespace.run("delete_topic", '"actor":"test","source":""', "orders", "", place)
        removed, place = removed + int(reply[2]), bytes(reply[3]).decode()
    assert removed == MANY + 1
