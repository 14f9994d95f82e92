"""Limits of the route table that the scripts check, before they write anything."""

from typing import Any

import pytest

from routebook.errors import LimitError
from routebook.model.broker import QueueData
from routebook.replica.load import in_steps
from routebook.store.administration import delete_kv, import_kv, put_kv, register_topic
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups
from routebook.store.registration import QueueDifference, SeatReply, TableLimits, register_broker
from routebook.store.removal import Removal, unregister_brokers
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER
from tests.reference.build import A, B, C, mapping, registration, topics
from tests.support.scripts import NO_BRAKE, history

NO_LIMITS = TableLimits()


async def add(namespace: Namespace, limits: TableLimits = NO_LIMITS, **changes: Any) -> SeatReply:
    """A registration whose topics are all new."""
    sent = registration(**changes)
    name = (await open_namespace(namespace)).history
    group = (await read_groups(namespace, {sent.broker: None}))[sent.broker].group
    return await register_broker(
        namespace,
        sent,
        QueueDifference(new=sent.topics, mappings=sent.mappings),
        caller=CALLER,
        timeout_ms=120_000,
        digest="",
        base=(name, group.revision if group else 0),
        replaces_known=True,
        run_steps=in_steps,
        limits=limits,
    )


@pytest.mark.parametrize(
    ("limits", "exceeded", "changes"),
    [
        (TableLimits(clusters=1), "max_clusters", {"cluster": "west"}),
        (TableLimits(groups=1), "max_groups", {"broker": "broker-b"}),
        (TableLimits(brokers=1), "max_brokers", {"broker_id": 1}),
        (TableLimits(seats_per_group=1), "max_seats_per_group", {"broker_id": 1}),
        (TableLimits(topics_per_broker=2), "max_topics_per_broker", {"address": A, "topics": topics("new")}),
        (
            TableLimits(topics_per_broker=1),
            "max_topics_per_broker",
            {"address": A, "topics": {}, "mappings": {"x": mapping(bname="host"), "y": mapping(bname="host")}},
        ),
        (TableLimits(groups=1), "max_groups", {"address": A, "mappings": {x: mapping(bname=x) for x in "ab"}}),
    ],
)
async def test_what_exceeds_a_limit_changes_nothing(
    namespace: Namespace, limits: TableLimits, exceeded: str, changes: dict[str, Any]
) -> None:
    assert (await add(namespace, address=A)).status is Status.DONE
    before = await history(namespace)
    reply = await add(namespace, limits, **({"address": B, "topics": {}} | changes))
    assert (reply.status, reply.exceeded) == (Status.LIMITED, exceeded)
    assert await history(namespace) == before
    assert await namespace.client.call("SCARD", namespace.keys.table("clusters")) == 1


async def test_what_is_registered_already_may_stay_above_a_lowered_limit(namespace: Namespace) -> None:
    await add(namespace, address=A)
    await add(namespace, address=B, broker_id=1)
    lowered = TableLimits(clusters=1, groups=1, brokers=1, seats_per_group=1, topics_per_broker=1)
    assert (await add(namespace, lowered, address=A, topics={})).status is Status.UNCHANGED
    assert (await add(namespace, lowered, address=B, broker_id=1, topics={})).status is Status.UNCHANGED


async def test_an_instance_that_replaces_another_needs_no_further_seat(namespace: Namespace) -> None:
    await add(namespace, address=A)
    assert (await add(namespace, TableLimits(seats_per_group=1), address=C)).status is Status.DONE


async def test_a_refused_registration_creates_no_cluster_beyond_the_limit(namespace: Namespace) -> None:
    await add(namespace, address=A)
    reply = await add(namespace, TableLimits(clusters=1), cluster="west", broker="x", topics=topics("only"))
    assert (reply.status, reply.exceeded) == (Status.LIMITED, "max_clusters")


async def test_a_topic_by_request_counts_towards_the_topics_of_its_broker(namespace: Namespace) -> None:
    await add(namespace, address=A, topics=topics("one", "two"))
    queues = {"broker-a": QueueData(1, 1, 6)}
    refused = await register_topic(namespace, "three", queues, caller=CALLER, max_topics=2)
    assert refused.status is Status.LIMITED
    assert (await register_topic(namespace, "one", queues, caller=CALLER, max_topics=2)).status is Status.DONE


async def test_a_group_with_thousands_of_seats_loses_its_smallest_id(namespace: Namespace) -> None:
    """`unpack` passes about 8,000 values: the script used to fail after it had removed the seat."""
    await add(namespace, address=A, broker_id=1, acting_master=True)
    seats = [word for number in range(2, 5002) for word in (f"addr:{number}", f"127.0.0.1:{number}")]
    await namespace.client.call("HSET", namespace.keys.of("broker", "broker-a"), *seats)
    reply = await unregister_brokers(namespace, [(Removal("east", "broker-a", 1, A), CALLER)], NO_BRAKE)
    assert reply.statuses == (Status.DONE,)
    assert len(reply.notices[0].receivers) == 5000


async def test_an_entry_of_another_program_does_not_stop_a_removal(namespace: Namespace) -> None:
    await add(namespace, address=A, broker_id=0, acting_master=True)
    await add(namespace, address=B, broker_id=1, acting_master=True, topics={})
    await namespace.client.call("HSET", namespace.keys.of("queues", "broker-a"), "foreign", "no queue data")
    reply = await unregister_brokers(namespace, [(Removal("east", "broker-a", 0, A), CALLER)], NO_BRAKE)
    assert reply.statuses == (Status.DONE,)


async def put(namespace: Namespace, key: str, value: str, kv_namespace: str = "ns", **limits: int) -> None:
    await put_kv(namespace, kv_namespace, key, value, caller=CALLER, **limits)


async def test_the_number_of_key_values_is_limited(namespace: Namespace) -> None:
    for key in "ab":
        await put(namespace, key, "v", max_count=2)
    with pytest.raises(LimitError, match="max_key_values allows 2"):
        await put(namespace, "c", "v", max_count=2)
    await put(namespace, "a", "another", max_count=2)
    await delete_kv(namespace, "ns", "b", caller=CALLER)
    await put(namespace, "c", "v", max_count=2)


async def test_the_number_of_key_value_namespaces_is_limited(namespace: Namespace) -> None:
    """A namespace remains when its last key is deleted."""
    for name in "ab":
        await put(namespace, "k", "v", kv_namespace=name, max_count=2)
        await delete_kv(namespace, name, "k", caller=CALLER)
    with pytest.raises(LimitError, match="max_key_values"):
        await put(namespace, "k", "v", kv_namespace="c", max_count=2)
    await put(namespace, "k", "v", kv_namespace="a", max_count=2)


async def test_the_bytes_of_all_key_values_are_limited(namespace: Namespace) -> None:
    await put(namespace, "a", "x" * 49, max_bytes=100)
    await put(namespace, "b", "x" * 49, max_bytes=100)
    with pytest.raises(LimitError, match="max_key_values_bytes allows 100"):
        await put(namespace, "c", "", max_bytes=100)
    with pytest.raises(LimitError):
        await put(namespace, "b", "x" * 50, max_bytes=100)
    await put(namespace, "a", "x" * 10, max_bytes=100)
    await put(namespace, "b", "x" * 88, max_bytes=100)
    await delete_kv(namespace, "ns", "b", caller=CALLER)
    await put(namespace, "b", "x" * 88, max_bytes=100)


async def test_key_values_of_an_older_release_are_counted(namespace: Namespace) -> None:
    await put(namespace, "a", "x", max_bytes=1000)
    await namespace.client.call("HSET", namespace.keys.of("kv", "ns"), "b", "x" * 90)
    with pytest.raises(LimitError):
        await put(namespace, "c", "x" * 10, max_bytes=100)
    await put(namespace, "c", "x", max_bytes=100)


async def test_imported_and_restored_key_values_are_counted(namespace: Namespace) -> None:
    await import_kv(namespace, [("ns", "a", "x" * 50)], file="ab", start=0, is_last=True, caller=CALLER)
    await put(namespace, "b", "x" * 9, max_bytes=100)
    with pytest.raises(LimitError):
        await put(namespace, "c", "x" * 50, max_bytes=100)
