"""Whole workers behind Sentinel and on a Cluster: a failover is followed, a lost tail begins a new history."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from routebook.errors import RoutebookError
from routebook.replica.load import load
from tests.reference.build import registration, topics
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.topologies import ClusterTrio, SentinelTrio, ask, kill
from tests.support.waiting import until

FAST = {"scan_not_active_broker_interval_ms": 200, "lease_ms": 1500}


@pytest.fixture
def trio() -> Iterator[SentinelTrio]:
    with SentinelTrio() as running:
        yield running


def cut_off_replica(trio: SentinelTrio) -> None:
    """It may not come back to a primary whose password it does not know; who is connected stays connected."""
    with redis.Redis(port=trio.primary.port or 0, protocol=2) as primary:
        primary.execute_command("CONFIG", "SET", "requirepass", "unknown")
        primary.execute_command("CLIENT", "KILL", "TYPE", "replica")


async def registered(worker: InProcessWorker, number: int) -> bool:
    said = registration(f"127.0.1.{number}:10911", broker=f"broker-{number}", topics=topics(f"topic-{number}", "all"))
    try:
        await register(worker.registry, said)
    except RoutebookError:
        return False
    return True


async def shows_what_the_store_holds(worker: InProcessWorker) -> bool:
    table, position = await load(worker.namespace)
    return worker.replica.digest == table.digest and worker.registry.version == position.version


async def test_a_failover_is_followed_and_nobody_expires(trio: SentinelTrio) -> None:
    async with running_worker(trio.url, "t", **FAST) as one, running_worker(trio.url, "t", **FAST) as other:
        for worker in (one, other):
            worker.lead()
        for number in range(10):
            assert await registered(one, number)
        await other.registry.wait_for_version(one.registry.version)
        await one.client.call("WAIT", 1, 1000)
        kill(trio.primary)
        for worker in (one, other):
            for number in range(10):
                worker.registry.find_route(f"topic-{number}")
        await until(lambda: registered(other, 10), timeout_s=15, every_s=0.1)
        await until(lambda: one.replica.current and other.replica.current)
        await one.registry.wait_for_version(other.registry.version)
        assert one.replica.digest == other.replica.digest
        assert len(one.registry.brokers()) == 11
        await until(lambda: shows_what_the_store_holds(one))


async def test_changes_lost_by_a_failover_begin_a_new_history(trio: SentinelTrio) -> None:
    """The replica is cut off while the primary takes one more registration, which then dies with it."""
    async with running_worker(trio.url, "t") as one, running_worker(trio.url, "t") as other:
        assert await registered(one, 0)
        await one.client.call("WAIT", 1, 1000)
        history = one.registry.history
        cut_off_replica(trio)
        assert await registered(one, 1)
        await other.registry.wait_for_version(one.registry.version)
        kill(trio.primary)
        await until(lambda: history not in (one.registry.history, other.registry.history), timeout_s=15)
        assert one.registry.history == other.registry.history
        # Shown although the store has lost it, until its broker is back or the window is over.
        for worker in (one, other):
            worker.registry.find_route("topic-1")
        await until(lambda: registered(one, 1), timeout_s=15, every_s=0.1)
        await other.registry.wait_for_version(one.registry.version)
        await until(lambda: one.replica.digest == other.replica.digest)
        assert "topic-1" in other.replica.table.queues_of("broker-1")


async def test_a_failover_on_purpose_costs_a_moment(trio: SentinelTrio) -> None:
    async with running_worker(trio.url, "t") as worker:
        assert await registered(worker, 0)
        await worker.client.call("WAIT", 1, 1000)
        ask(trio.sentinel_ports[0], "SENTINEL", "FAILOVER", "names")
        await until(lambda: registered(worker, 1), timeout_s=15, every_s=0.1)
        await until(lambda: worker.replica.current)
        assert set(worker.registry.brokers()) == {"broker-0", "broker-1"}


async def test_one_slot_of_a_cluster_holds_a_whole_namespace() -> None:
    with ClusterTrio() as cluster:
        async with running_worker(cluster.url, "t", **FAST) as one, running_worker(cluster.url, "t") as other:
            one.lead()
            await asyncio.gather(*(registered(one if n % 2 else other, n) for n in range(20)))
            await one.registry.register_topic("by-request", {"broker-3": topics("x")["x"]}, CALLER)
            await one.registry.set_write_permission("broker-4", False, CALLER)
            await one.registry.put_kv("ns", "key", "value", CALLER)
            await one.registry.unregister("east", "broker-5", 0, CALLER)
            await other.registry.wait_for_version(one.registry.version)
            assert one.replica.digest == other.replica.digest
            assert len(other.registry.brokers()) == 19
            await until(lambda: shows_what_the_store_holds(other))
            await until(lambda: one.leader.lease is not None)
