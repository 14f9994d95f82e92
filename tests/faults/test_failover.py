"""Workers on a store with Sentinel and on a Cluster follow a failover. Lost changes begin a new history."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from routebook.errors import RoutebookError
from routebook.replica.load import load
from tests.reference.build import registration, topics
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.topologies import ClusterTrio, SentinelTrio, ask, have_replicated, kill
from tests.support.waiting import until

FAST = {"scan_not_active_broker_interval_ms": 200, "lease_ms": 1500}


@pytest.fixture
def trio() -> Iterator[SentinelTrio]:
    with SentinelTrio() as running:
        yield running


def cut_off_replica(trio: SentinelTrio) -> None:
    """Disconnects the replica, and sets a password that it does not have. Connections of workers stay open."""
    with redis.Redis(port=trio.primary.port or 0, protocol=2) as primary:
        primary.execute_command("CONFIG", "SET", "requirepass", "unknown")
        primary.execute_command("CLIENT", "KILL", "TYPE", "replica")


async def try_to_register(worker: InProcessWorker, number: int) -> bool:
    """Registers the broker, and returns whether the registration succeeded."""
    broker = registration(f"127.0.1.{number}:10911", broker=f"broker-{number}", topics=topics(f"topic-{number}", "all"))
    try:
        await register(worker.registry, broker)
    except RoutebookError:
        return False
    return True


async def has_the_table_of_the_store(worker: InProcessWorker) -> bool:
    table, position = await load(worker.namespace)
    return worker.replica.table.digest == table.digest and worker.replica.version == position.version


async def test_workers_follow_a_failover_and_expire_no_broker(trio: SentinelTrio) -> None:
    async with running_worker(trio.url, "t", **FAST) as one, running_worker(trio.url, "t", **FAST) as other:
        for worker in (one, other):
            worker.lead()
        for number in range(10):
            assert await try_to_register(one, number)
        await other.registry.wait_for_version(one.registry.replica.version)
        await until(lambda: asyncio.to_thread(have_replicated, trio.primary.port or 0, 1))
        kill(trio.primary)
        for worker in (one, other):
            for number in range(10):
                worker.registry.find_route(f"topic-{number}")
        await until(lambda: try_to_register(other, 10), every_s=0.1)
        await until(lambda: one.replica.current and other.replica.current)
        await one.registry.wait_for_version(other.registry.replica.version)
        assert one.replica.table.digest == other.replica.table.digest
        assert len(one.registry.brokers()) == 11
        await until(lambda: has_the_table_of_the_store(one))


async def test_changes_lost_by_a_failover_begin_a_new_history(trio: SentinelTrio) -> None:
    """The primary accepts a registration after its replica is cut off. The failover loses this registration."""
    async with running_worker(trio.url, "t") as one, running_worker(trio.url, "t") as other:
        assert await try_to_register(one, 0)
        await until(lambda: asyncio.to_thread(have_replicated, trio.primary.port or 0, 1))
        history = one.registry.replica.history
        cut_off_replica(trio)
        assert await try_to_register(one, 1)
        await other.registry.wait_for_version(one.registry.replica.version)
        kill(trio.primary)
        await until(lambda: history not in (one.registry.replica.history, other.registry.replica.history))
        assert one.registry.replica.history == other.registry.replica.history
        # Workers serve the lost route until its broker registers again or the recovery window ends.
        for worker in (one, other):
            worker.registry.find_route("topic-1")
        await until(lambda: try_to_register(one, 1), every_s=0.1)
        await other.registry.wait_for_version(one.registry.replica.version)
        await until(lambda: one.replica.table.digest == other.replica.table.digest)
        assert "topic-1" in other.replica.table.queues_of("broker-1")


async def test_a_planned_failover_loses_no_broker(trio: SentinelTrio) -> None:
    async with running_worker(trio.url, "t") as worker:
        assert await try_to_register(worker, 0)
        await until(lambda: asyncio.to_thread(have_replicated, trio.primary.port or 0, 1))
        ask(trio.sentinel_ports[0], "SENTINEL", "FAILOVER", "names")
        await until(lambda: try_to_register(worker, 1), every_s=0.1)
        await until(lambda: worker.replica.current)
        assert set(worker.registry.brokers()) == {"broker-0", "broker-1"}


async def test_a_namespace_is_in_one_slot_of_a_cluster() -> None:
    with ClusterTrio() as cluster:
        async with running_worker(cluster.url, "t", **FAST) as one, running_worker(cluster.url, "t") as other:
            one.lead()
            await asyncio.gather(*(try_to_register(one if n % 2 else other, n) for n in range(20)))
            await one.registry.register_topic("by-request", {"broker-3": topics("x")["x"]}, CALLER)
            await one.registry.set_write_permission("broker-4", False, CALLER)
            await one.registry.put_kv("ns", "key", "value", CALLER)
            await one.registry.unregister("east", "broker-5", 0, CALLER)
            await other.registry.wait_for_version(one.registry.replica.version)
            assert one.replica.table.digest == other.replica.table.digest
            assert len(other.registry.brokers()) == 19
            await until(lambda: has_the_table_of_the_store(other))
            await until(lambda: one.leader.lease is not None)
