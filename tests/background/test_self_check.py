"""Self-checks: they write back what was deleted from the store without a change, and only that."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from routebook.model.broker import QueueData
from routebook.model.identity import Credentials, Identity, Role
from routebook.replica.load import load
from routebook.store.identities import put_identity
from routebook.store.registration import STAGE_FROM_TOPICS
from routebook.store.removal import Removal, unregister_brokers
from tests.reference.build import A, B, C, mapping, registration, topics
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.scripts import NO_BRAKE, history, kinds
from tests.support.waiting import until

FLEET = (
    registration(A, mappings={"orders": mapping()}, filters=("one",), zone="zone-1"),
    registration(B, 1),
    registration(C, broker="broker-b", cluster="west", topics=topics("bills", "refunds"), acting_master=True),
)
LASTING_KEYS = (
    "queues:broker-a", "queues:broker-b", "clusters", "cluster:east", "cluster:west", "broker:broker-a",
    "broker:broker-b", f"instance:east/{A}", "deadlines", "filters", "mapping:broker-a", "mapped", "kv", "kv:ns",
    "settings", "identities",
)  # fmt: skip


@pytest.fixture
async def worker(store_url: str, namespace_name: str) -> AsyncIterator[InProcessWorker]:
    async with running_worker(store_url, namespace_name, self_check_interval_ms=0) as one:
        for broker in FLEET:
            await register(one.registry, broker)
        await one.registry.put_kv("ns", "key", "value", CALLER)
        await one.registry.put_kv("ns", "other", "value", CALLER)
        await one.registry.change_setting("hold_percent", "90", CALLER)
        identity = Identity("ops", Role.OPERATOR)
        outcome, _ = await put_identity(one.namespace, identity, Credentials(token_sha256="0" * 64), caller=CALLER)
        await one.registry.wait_for_version(outcome.version)
        yield one


async def delete(worker: InProcessWorker, *names: str) -> None:
    for name in names:
        assert await worker.client.call("DEL", worker.namespace.keys.table(name)) == 1, name


async def has_the_table_of_the_store(worker: InProcessWorker) -> bool:
    """Whether a worker that starts now would have the table of this one."""
    table, position = await load(worker.namespace)
    return table.digest == worker.replica.table.digest and position.version == worker.replica.version


async def test_an_undamaged_store_is_not_changed(worker: InProcessWorker) -> None:
    version = worker.replica.version
    await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert worker.replica.version == version
    assert worker.registry.store_health.differences == 0
    assert worker.registry.store_health.check_age_s is not None


@pytest.mark.parametrize("name", LASTING_KEYS)
async def test_a_deleted_key_is_written_back(
    worker: InProcessWorker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = worker.replica.table.digest
    await delete(worker, name)
    with caplog.at_level(logging.ERROR):
        await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert worker.replica.table.digest == before
    differences = worker.registry.store_health.differences
    assert differences > 0
    assert "had lost" in caplog.text
    await worker.self_check.check()
    assert worker.registry.store_health.differences == differences


async def test_everything_is_written_back_at_once(worker: InProcessWorker) -> None:
    before = worker.replica.table.digest
    await delete(worker, *LASTING_KEYS)
    await worker.self_check.check()
    await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert worker.replica.table.digest == before


async def test_a_single_field_is_written_back(worker: InProcessWorker) -> None:
    keys = worker.namespace.keys
    await worker.client.call("HDEL", keys.of("queues", "broker-b"), "bills")
    await worker.client.call("HDEL", keys.of("broker", "broker-a"), "addr:1")
    await worker.client.call("HDEL", keys.of("kv", "ns"), "other")
    await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert "bills" in worker.replica.table.queues_of("broker-b")


async def test_the_history_names_what_was_written_back(worker: InProcessWorker) -> None:
    version = worker.replica.version
    await delete(worker, "queues:broker-b", "clusters")
    await worker.self_check.check()
    changes = await history(worker.namespace, after=version)
    assert sorted((change.kind, change.broker) for change in changes) == [
        ("group-changed", "broker-a"),
        ("group-changed", "broker-b"),
        ("queues-changed", "broker-b"),
    ]
    (repaired,) = [change for change in changes if change.kind == "queues-changed"]
    assert repaired.fields["cause"] == "repaired"
    assert repaired.topics == frozenset({"bills", "refunds"})


async def test_a_worker_that_started_meanwhile_gets_what_was_written_back(
    worker: InProcessWorker, store_url: str, namespace_name: str
) -> None:
    await delete(worker, "queues:broker-b", "kv:ns")
    async with running_worker(store_url, namespace_name) as late:
        assert "bills" not in late.replica.table.topics
        await worker.self_check.check()
        await late.registry.wait_for_version(worker.replica.version)
        assert late.replica.table.digest == worker.replica.table.digest


async def test_a_worker_that_started_meanwhile_needs_no_lists_of_clusters(
    worker: InProcessWorker, store_url: str, namespace_name: str
) -> None:
    """Even if no other worker remembers them: the instances name their groups."""
    await delete(worker, "clusters", "cluster:east", "cluster:west")
    async with running_worker(store_url, namespace_name) as late:
        assert late.registry.find_route("bills") == worker.registry.find_route("bills")
        await late.self_check.check()
        assert set(late.replica.table.clusters) == {"east", "west"}


async def test_a_large_group_is_written_back_in_parts(worker: InProcessWorker) -> None:
    many = topics(*(f"topic-{number}" for number in range(STAGE_FROM_TOPICS + 1)))
    await register(worker.registry, registration("127.0.0.9:1", broker="large", topics=many))
    await delete(worker, "queues:large")
    await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert len(worker.replica.table.queues_of("large")) == len(many)


async def test_the_next_registration_after_a_repair_is_compared_in_full(worker: InProcessWorker) -> None:
    sent = registration(C, broker="broker-b", cluster="west", topics=topics("bills", "refunds"), acting_master=True)
    assert (await register(worker.registry, sent)).status == "unchanged"
    await delete(worker, "queues:broker-b")
    await worker.self_check.check()
    instance = worker.namespace.keys.of("instance", sent.instance_name)
    group = worker.namespace.keys.of("broker", "broker-b")
    assert await worker.client.call("HGET", instance, "rev") != await worker.client.call("HGET", group, "rev")
    assert (await register(worker.registry, sent)).status == "unchanged"
    assert await worker.client.call("HGET", instance, "rev") == await worker.client.call("HGET", group, "rev")


async def test_a_registration_of_a_damaged_group_has_it_repaired_at_once(worker: InProcessWorker) -> None:
    """Without the group's hash, no registration fits the replica. Its brokers would expire before the next check."""
    worker.check_store()
    await delete(worker, "broker:broker-a")
    assert (await register(worker.registry, FLEET[1])).status in ("changed", "unchanged")
    assert await has_the_table_of_the_store(worker)
    assert worker.replica.table.groups["broker-a"].addresses == {0: A, 1: B}


async def test_what_was_removed_by_a_change_is_not_written_back(worker: InProcessWorker) -> None:
    """The replica has not applied the removals yet: the script refuses, because the store has another position."""

    async def remove(broker: str, cluster: str, broker_id: int) -> None:
        await unregister_brokers(worker.namespace, [(Removal(cluster, broker, broker_id), CALLER)], NO_BRAKE)

    for _ in range(5):
        await asyncio.gather(
            worker.self_check.check(),
            remove("broker-b", "west", 0),
            worker.self_check._compare_group("broker-b"),
        )
        await until(lambda: "broker-b" not in worker.replica.table.groups)
        assert await has_the_table_of_the_store(worker)
        await register(worker.registry, FLEET[2])
    assert worker.registry.store_health.differences == 0


async def test_registrations_during_a_check_are_no_differences(worker: InProcessWorker) -> None:
    async def change(number: int) -> None:
        for step in range(20):
            names = [f"t-{number}-{i}" for i in range(step + 1)]
            broker = registration(f"127.0.1.{number}:1", broker=f"g-{number}", topics=topics(*names, "x", "y"))
            await register(worker.registry, broker)

    work = asyncio.gather(*map(change, range(4)))
    while not work.done():
        await worker.self_check.check()
    await work
    assert worker.registry.store_health.differences == 0
    assert await has_the_table_of_the_store(worker)


async def test_damage_is_repaired_while_brokers_register(worker: InProcessWorker) -> None:
    async def change() -> None:
        for step in range(40):
            await register(worker.registry, registration("127.0.1.1:1", broker="g", topics=topics(f"t-{step}", "x")))

    work = asyncio.ensure_future(change())
    await delete(worker, "queues:broker-a", "clusters", "kv:ns")
    while not work.done():
        await worker.self_check.check()
    await work
    await worker.self_check.check()
    assert await has_the_table_of_the_store(worker)
    assert "orders" in worker.replica.table.queues_of("broker-a")


async def test_what_the_store_has_otherwise_makes_the_worker_load_the_table_again(worker: InProcessWorker) -> None:
    version = worker.replica.version
    packed = QueueData(read_queues=3, write_queues=3).pack()
    await worker.client.call("HSET", worker.namespace.keys.of("queues", "broker-b"), "bills", packed)
    await worker.client.call("HSET", worker.namespace.keys.of("kv", "ns"), "by-hand", "value")
    await worker.self_check.check()
    await until(lambda: worker.replica.table.queues_of("broker-b")["bills"].read_queues == 3)
    assert worker.replica.table.kv["ns"]["by-hand"] == "value"
    assert worker.replica.version == version
    assert await kinds(worker.namespace, after=version) == []


async def test_a_worker_checks_periodically(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, self_check_interval_ms=200) as worker:
        worker.check_store()
        await register(worker.registry, FLEET[2])
        await delete(worker, "queues:broker-b", "clusters")
        await until(lambda: worker.registry.store_health.differences)
        await until(lambda: has_the_table_of_the_store(worker))
        await delete(worker, "queues:broker-b")
        await until(lambda: worker.registry.store_health.differences > 1)
