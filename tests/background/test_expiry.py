"""Expiry by the leader: no broker expires because of an outage, and too many expiries at once are held."""

import asyncio

import pytest

from routebook.errors import NotFoundError
from routebook.store.history import Change, changes_between
from tests.reference.build import registration
from tests.support.fault_proxy import FaultProxy
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.scripts import make_due
from tests.support.waiting import until

FAST = {"scan_not_active_broker_interval_ms": 100, "lease_ms": 1500}


def shown(worker: InProcessWorker) -> tuple[str, ...]:
    return worker.registry.brokers()


async def register_numbered(worker: InProcessWorker, number: int, *, timeout_ms: int = 60_000) -> str:
    broker = registration(f"127.0.1.{number}:10911", broker=f"broker-{number}", timeout_ms=timeout_ms)
    await register(worker.registry, broker)
    return broker.instance_name


async def test_a_silent_broker_expires_and_one_with_heartbeats_does_not(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        worker.lead()
        await register_numbered(worker, 1, timeout_ms=1000)
        # Long enough that no heartbeat comes too late on a busy machine.
        await register_numbered(worker, 2, timeout_ms=2000)

        async def beat() -> None:
            while True:
                await worker.registry.heartbeat("east", "broker-2", 0, CALLER)
                await asyncio.sleep(0.1)

        worker.spawn(beat())
        await until(lambda: shown(worker) == ("broker-2",))
        await asyncio.sleep(2.5)
        assert shown(worker) == ("broker-2",)
        with pytest.raises(NotFoundError):
            worker.registry.broker("broker-1")


async def test_a_new_leader_expires_brokers_of_the_former_one(store_url: str, namespace_name: str) -> None:
    async with (
        running_worker(store_url, namespace_name, **FAST) as first,
        running_worker(store_url, namespace_name, **FAST) as second,
    ):
        first.lead()
        await until(lambda: first.leader.lease is not None)
        second.lead()
        await register_numbered(second, 1, timeout_ms=1500)
        state = await second.registry.expiry_state()
        assert (state.leader, second.leader.lease) == (first.name, None)
        await first.end()
        await until(lambda: second.leader.lease is not None)
        await until(lambda: shown(second) == ())
        assert second.leader.lease is not None
        assert second.leader.lease.token > (state.token or 0)


async def test_stepping_down_lets_the_next_worker_lead_at_once(store_url: str, namespace_name: str) -> None:
    slow = {"scan_not_active_broker_interval_ms": 100, "lease_ms": 60_000}
    async with (
        running_worker(store_url, namespace_name, **slow) as first,
        running_worker(store_url, namespace_name, **slow) as second,
    ):
        leading = first.spawn(first.leader.run())
        await until(lambda: first.leader.lease is not None)
        second.lead()
        leading.cancel()
        await first.leader.step_down()
        await until(lambda: second.leader.lease is not None)


async def test_many_at_once_are_held_until_an_operator_releases_them(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        instance_names = [await register_numbered(worker, n) for n in range(10)]
        await make_due(worker.namespace, *instance_names[:6])
        worker.lead()
        await until(lambda: _is_held(worker))
        await asyncio.sleep(0.5)
        assert len(shown(worker)) == 10
        state = await worker.registry.expiry_state()
        assert (state.due, state.instances) == (6, 10)
        assert (_metric(worker, "held"), _metric(worker, "due_brokers"), _metric(worker, "holds_total")) == (1, 6, 1)
        assert state.brokers == tuple(f"broker-{n}" for n in range(6))
        after = await worker.registry.release_expiry(CALLER)
        assert not after.held
        await until(lambda: len(shown(worker)) == 4)
        assert _kinds_of_hold(await changes_between(worker.namespace, 0, 1000)) == ["expiry-held", "expiry-released"]


async def test_small_numbers_and_small_shares_are_not_held(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST, hold_window_ms=0) as worker:
        instance_names = [await register_numbered(worker, n) for n in range(20)]
        worker.lead()
        await make_due(worker.namespace, *instance_names[:6])
        await until(lambda: len(shown(worker)) == 14)
        await make_due(worker.namespace, *instance_names[6:10])
        await until(lambda: len(shown(worker)) == 10)


async def test_brokers_that_are_due_one_after_another_are_held_as_well(store_url: str, namespace_name: str) -> None:
    """Their deadlines differ, so that no scan finds more than one of them."""
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        for n in range(12):
            await register_numbered(worker, n, timeout_ms=1000 + 250 * n)
        worker.lead()
        await until(lambda: _is_held(worker))
        await asyncio.sleep(1)
        assert len(shown(worker)) >= 12 - 12 * 3 // 10 - 1
        await worker.registry.release_expiry(CALLER)
        await worker.registry.change_setting("hold_percent", "100", CALLER)
        await until(lambda: shown(worker) == ())


async def test_a_hold_ends_when_the_brokers_send_heartbeats_again(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        instance_names = [await register_numbered(worker, n) for n in range(10)]
        await make_due(worker.namespace, *instance_names[:6])
        worker.lead()
        await until(lambda: _is_held(worker))
        for n in range(4):
            await worker.registry.heartbeat("east", f"broker-{n}", 0, CALLER)
        await until(lambda: len(shown(worker)) == 8)
        assert not (await worker.registry.expiry_state()).held


async def test_a_hold_does_not_count_removed_brokers_that_are_back(store_url: str, namespace_name: str) -> None:
    """Four are removed, the fifth is held. When the four are back, one dead broker is no mass removal."""
    async with running_worker(store_url, namespace_name, **FAST, hold_window_ms=2000) as worker:
        instance_names = [await register_numbered(worker, n) for n in range(12)]
        worker.lead()
        for n in range(4):
            await make_due(worker.namespace, instance_names[n])
            await until(lambda: len(shown(worker)) == 11 - n)  # noqa: B023 - called in this turn only
        await make_due(worker.namespace, instance_names[4])
        await until(lambda: _is_held(worker))
        for n in range(4):
            await register_numbered(worker, n)
        await until(lambda: "broker-4" not in shown(worker))
        assert len(shown(worker)) == 11
        assert not (await worker.registry.expiry_state()).held


async def test_the_limits_of_a_hold_change_at_run_time(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        await worker.registry.change_setting("hold_percent", "100", CALLER)
        instance_names = [await register_numbered(worker, n) for n in range(10)]
        await make_due(worker.namespace, *instance_names)
        worker.lead()
        await until(lambda: shown(worker) == ())


async def test_thousands_of_due_brokers_are_removed_in_batches(store_url: str, namespace_name: str) -> None:
    # The default timeouts are for a store with a machine of its own; here all tests share a few processors.
    long_timeouts = {"lease_ms": 10_000, "store_timeout_ms": 5_000}
    async with running_worker(store_url, namespace_name, **(FAST | long_timeouts), hold_minimum=10_000) as worker:
        instance_names = list(
            await asyncio.gather(*(_register_small(worker, n) for n in range(1500))),
        )
        await make_due(worker.namespace, *instance_names)
        worker.lead()
        await until(lambda: shown(worker) == (), timeout_s=20)


async def _register_small(worker: InProcessWorker, number: int) -> str:
    address = f"127.0.{number // 250}.{number % 250}:10911"
    broker = registration(address, broker=f"broker-{number}", timeout_ms=600_000)
    await register(worker.registry, broker)
    return broker.instance_name


async def test_no_broker_expires_because_of_time_without_any_worker(store_url: str, namespace_name: str) -> None:
    """An hour without any worker, according to the store: the rest of each timeout is unchanged."""
    async with running_worker(store_url, namespace_name, **FAST) as worker:
        instance_names = [await register_numbered(worker, n, timeout_ms=30_000) for n in range(3)]
        hour = 3_600_000
        now = _now_ms(await worker.client.call("TIME"))
        await worker.client.call("HSET", worker.namespace.keys.meta, "alive_ms", now - hour)
        for instance_name in instance_names:
            await worker.client.call("ZINCRBY", worker.namespace.keys.table("deadlines"), -hour, instance_name)
        worker.lead()
        await until(lambda: worker.leader.lease is not None)
        await asyncio.sleep(0.5)
        assert len(shown(worker)) == 3


def _now_ms(time: list[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


async def _is_held(worker: InProcessWorker) -> bool:
    return (await worker.registry.expiry_state()).held


async def test_a_leader_without_the_store_stops_reporting_that_it_leads(store_url: str, namespace_name: str) -> None:
    async with (
        FaultProxy.before(store_url) as proxy,
        running_worker(proxy.url, namespace_name, lease_ms=1000, store_timeout_ms=300) as worker,
    ):
        worker.lead()
        await until(lambda: worker.metrics.registry.get_sample_value("routebook_leader") == 1)
        await proxy.refuse()
        await until(lambda: worker.metrics.registry.get_sample_value("routebook_leader") == 0)
        assert worker.leader.lease is not None, "the lease may still be its own, so it keeps trying to renew it"
        await proxy.accept()
        await until(lambda: worker.metrics.registry.get_sample_value("routebook_leader") == 1)


def _metric(worker: InProcessWorker, name: str) -> float | None:
    return worker.metrics.registry.get_sample_value(f"routebook_expiry_{name}")


def _kinds_of_hold(changes: list[Change]) -> list[str]:
    return [change.kind for change in changes if change.kind.startswith("expiry")]
