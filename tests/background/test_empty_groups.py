"""Groups without brokers are removed by the leader, after a while."""

import asyncio

import pytest

from routebook.errors import RefusedError
from routebook.store.administration import remove_empty_groups
from routebook.store.namespace import Status
from tests.reference.build import registration, topics
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.scripts import newest
from tests.support.waiting import until

FAST = {"scan_not_active_broker_interval_ms": 50, "lease_ms": 1500, "empty_group_timeout_ms": 300}


async def refuse(worker: InProcessWorker, broker: str, cluster: str = "east") -> None:
    with pytest.raises(RefusedError):
        await register(worker.registry, registration(broker=broker, cluster=cluster, topics=topics("only")))


async def test_the_empty_group_of_a_refused_registration_is_removed(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        await register(worker.registry, registration(broker="broker-a"))
        for number in range(120):
            await refuse(worker, f"unknown-{number}", cluster="west")
        assert len(worker.registry.view.groups) == 121
        worker.lead()
        await until(lambda: list(worker.registry.view.groups) == ["broker-a"])
        assert list(worker.registry.view.clusters) == ["east"]
        change = await newest(worker.namespace)
        assert (change.kind, change.fields["group_removed"]) == ("group-changed", True)


async def test_a_group_that_has_got_a_broker_remains(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST | {"empty_group_timeout_ms": 1000}) as worker:
        worker.lead()
        await refuse(worker, "broker-b")
        await asyncio.sleep(0.3)
        await register(worker.registry, registration(broker="broker-b"))
        await asyncio.sleep(1.5)
        assert worker.registry.view.groups["broker-b"].addresses


async def test_a_late_decision_removes_no_group(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await refuse(worker, "broker-a")
        empty = [("broker-a", worker.registry.view.groups["broker-a"].revision)]
        worker.lead()
        await until(lambda: worker.leader.lease is not None)
        lease = worker.leader.lease
        assert lease is not None
        fenced = await remove_empty_groups(worker.namespace, "another lease", empty, caller=CALLER)
        assert fenced.status is Status.FENCED
        await register(worker.registry, registration(broker="broker-a"))
        late = await remove_empty_groups(worker.namespace, lease.whole, empty, caller=CALLER)
        assert (late.status, late.count) == (Status.UNCHANGED, 0)
        assert worker.registry.view.groups["broker-a"].addresses
