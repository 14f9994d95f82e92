"""Workers and brokers that die, stop or disagree: faults 1 to 7 of `docs/reliability.md`."""

import asyncio
from itertools import pairwise

import pytest

from routebook.store.history import Change, changes_between
from tests.faults.laboratory import Laboratory, seconds_until
from tests.faults.recording import Exchange
from tests.support.figures import Figures
from tests.support.waiting import until

pytestmark = pytest.mark.slow


async def removals(laboratory: Laboratory) -> list[Change]:
    changes = await changes_between(laboratory.namespace, 0, 100_000)
    return [change for change in changes if change.kind == "broker-removed"]


def without_answer(laboratory: Laboratory) -> list[Exchange]:
    """Lookups that were sent over an open connection."""
    return [one for one in laboratory.recording.lookups if one.code is None and one.connection]


async def test_a_killed_worker_loses_only_lookups_in_flight(laboratory: Laboratory, figure: Figures) -> None:
    await laboratory.start(workers=3, brokers=12, remoting=9, http=6)
    await laboratory.calm()
    victim = laboratory.workers[1]
    connected = sum(client.worker is victim for client in laboratory.clients)
    await laboratory.kill_worker(victim)
    await laboratory.calm(6)
    results = await laboratory.prove()
    lost = without_answer(laboratory)
    figure("lookups", len(laboratory.recording.lookups), at_least=1000)
    figure("clients connected to the killed worker", connected, at_least=1)
    figure("lookups in flight that were lost", len(lost), at_most=connected)
    figure("lookups lost by clients that repeat them", sum(client.failed for client in laboratory.clients), exactly=0)
    figure("healthy brokers removed (I1)", len(results["I1"].violations), exactly=0)


async def test_a_killed_leader_is_replaced_and_delays_an_expiry_by_its_lease(
    laboratory: Laboratory, figure: Figures
) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    leader = await laboratory.leader()
    late_s = laboratory.setting_s("lease_ms") + 2
    on_time_s = laboratory.setting_s("broker_timeout_ms") + laboratory.setting_s("scan_not_active_broker_interval_ms")
    # The brokers of a dead worker get one more timeout, so the silent one is connected to another worker.
    silent = next(broker for broker in laboratory.brokers.values() if broker.worker is not leader)
    silent.fall_silent(bound_s=on_time_s + late_s)
    await asyncio.sleep(on_time_s - 1)
    await laboratory.kill_worker(leader)
    took_s = await seconds_until(laboratory.leader)
    await until(laboratory.all_are_complete)
    (removal,) = await removals(laboratory)
    silence_s = (removal.ms - removal.fields["last_heartbeat_ms"]) / 1000
    await laboratory.prove(required=("I1", "I2", "I7"))
    figure("a new leader after", took_s, "s", at_most=late_s)
    figure("the expiry is late by", max(silence_s - on_time_s, 0), "s", at_most=late_s)
    false = [one for one in await removals(laboratory) if one.broker != silent.name]
    figure("false expiries", len(false), exactly=0)


async def test_a_leader_that_was_suspended_writes_nothing(laboratory: Laboratory, figure: Figures) -> None:
    laboratory.settings["broker_timeout_ms"] = 8000
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    leader = await laboratory.leader()
    silent = next(broker for broker in laboratory.brokers.values() if broker.worker is not leader)
    silent.fall_silent()
    # The broker is due while the leader is suspended, and is removed by the next leader.
    await asyncio.sleep(laboratory.setting_s("broker_timeout_ms") - 1)
    version = (await changes_between(laboratory.namespace, 0, 100_000))[-1].version
    await laboratory.suspend(leader, 30)
    await laboratory.calm(5)
    await laboratory.prove(required=("I1", "I2", "I4", "I7"))
    after = await changes_between(laboratory.namespace, version, 100_000)
    late = [change for change in after if change.kind == "broker-removed" and change.fields["actor"] == leader.name]
    figure("late writes accepted", len(late), exactly=0)
    figure("removals of the silent broker", len(await removals(laboratory)), exactly=1)
    figure("fencing tokens seen", len({lease.token for lease in laboratory.recording.leases}), at_least=2)


async def test_leaders_whose_lease_is_deleted_remove_each_broker_once(laboratory: Laboratory, figure: Figures) -> None:
    """The former holder believes that it leads, until its next renewal."""
    laboratory.settings |= {"lease_ms": 900, "store_timeout_ms": 800}
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    silent = [laboratory.brokers[f"broker-{number}"] for number in range(3)]
    stop = asyncio.Event()
    deleted = 0

    async def delete_leases() -> None:
        nonlocal deleted
        while not stop.is_set():
            names = ("leader", "leader:token") if deleted % 5 == 0 else ("leader",)
            keys = [laboratory.namespace.keys.table(name) for name in names]
            deleted += bool(await laboratory.namespace.client.call("DEL", *keys))
            await asyncio.sleep(laboratory.random.uniform(0.02, 0.3))

    deleting = laboratory.spawn(delete_leases())
    for broker in silent:
        # A scan that is fenced starts again with the next leader.
        broker.fall_silent(bound_s=10)
        await asyncio.sleep(0.3)
    await until(laboratory.all_are_complete)
    await laboratory.calm(3)
    stop.set()
    await deleting
    await laboratory.prove(required=("I1", "I7"))
    removed = [change.broker for change in await removals(laboratory)]
    tokens = [lease.token for lease in laboratory.recording.leases]
    figure("leases deleted", deleted, at_least=10)
    figure("fencing tokens seen", len(set(tokens)), at_least=10)
    figure("tokens lower than one before", sum(b < a for a, b in pairwise(tokens)), exactly=0)
    figure("double expiries", len(removed) - len(set(removed)), exactly=0)
    assert set(removed) == {broker.name for broker in silent}


async def test_killed_brokers_are_removed_within_the_grace_and_a_second(
    laboratory: Laboratory, figure: Figures
) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    bound_s = laboratory.setting_s("connection_grace_ms") + 1
    for name in laboratory.random.sample(sorted(laboratory.brokers), 3):
        laboratory.brokers[name].kill(bound_s=bound_s)
        took_s = await seconds_until(lambda name=name: laboratory.has_removed(name))  # type: ignore[misc]
        figure("removed from every worker after", took_s, "s", at_most=bound_s)
        await laboratory.calm(1)
    await laboratory.prove(required=("I1", "I2", "I4"))


async def test_silent_brokers_are_removed_within_their_timeout_and_one_scan(
    laboratory: Laboratory, figure: Figures
) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    bound_s = laboratory.setting_s("broker_timeout_ms") + laboratory.setting_s("scan_not_active_broker_interval_ms")
    for name in laboratory.random.sample(sorted(laboratory.brokers), 3):
        laboratory.brokers[name].fall_silent()
        await until(lambda name=name: laboratory.has_removed(name))  # type: ignore[misc]
    await laboratory.prove(required=("I1", "I2", "I4"))
    for removal in await removals(laboratory):
        assert removal.fields["cause"] == "expired"
        silence_s = (removal.ms - removal.fields["last_heartbeat_ms"]) / 1000
        figure("removed after a silence of", silence_s, "s", at_most=bound_s)
    figure("removals", len(await removals(laboratory)), exactly=3)


async def test_brokers_that_die_with_their_worker_are_removed_and_counted(
    laboratory: Laboratory, figure: Figures
) -> None:
    await laboratory.start(workers=3, brokers=12)
    await laboratory.calm()
    bound_s = laboratory.setting_s("broker_timeout_ms") + laboratory.setting_s("scan_not_active_broker_interval_ms")
    victim = laboratory.workers[2]
    broker = next(one for one in laboratory.brokers.values() if one.worker is victim)

    async def counted() -> float:
        """Removed brokers, as the metrics of the workers that are left count them."""
        names = ("routebook_lost_connections_total", "routebook_expired_brokers_total")
        left = [worker for worker in laboratory.running_workers if worker is not victim]
        return sum([await laboratory.metric(worker, name) for worker in left for name in names])

    before = await counted()
    await laboratory.kill_worker(victim)
    broker.kill(bound_s=bound_s)
    took_s = await seconds_until(lambda: laboratory.has_removed(broker.name))
    await laboratory.prove(required=("I1", "I2", "I4"))
    figure("removed from every worker after", took_s, "s", at_most=bound_s)
    figure("counted", await counted() - before, at_least=1)
