"""Departures, expiry and holds: what is checked before anything is removed."""

from dataclasses import replace
from typing import Any

import pytest

from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups, read_instances, read_service_state
from routebook.store.removal import (
    Brake,
    DueInstance,
    Removal,
    Scan,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
    unregister_brokers,
)
from routebook.store.workers import acquire_lease, release_lease, remove_worker, renew_lease, renew_worker_lease
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, C, registration
from tests.support.scripts import NO_BRAKE, deadline_of, history, kinds, make_due, make_old, meta, newest
from tests.support.waiting import until

INSTANCE_NAME = registration(A).instance_name


async def lead(namespace: Namespace, worker: str = "worker-1") -> str:
    is_leader, lease = await acquire_lease(namespace, worker, 30_000)
    assert is_leader
    return lease.whole


async def scan(namespace: Namespace, lease: str) -> Scan:
    return await scan_deadlines(namespace, lease, caller=CALLER, limit=100, brake=Brake(30, 5, 60_000))


def removal(address: str = A, broker_id: int = 0, incarnation: str = "", **more: Any) -> Removal:
    return Removal("east", "broker-a", broker_id, address, incarnation, **more)


async def leave(namespace: Namespace, *removals: Removal) -> tuple[Status, ...]:
    return (await unregister_brokers(namespace, [(one, CALLER) for one in removals], NO_BRAKE)).statuses


async def test_an_unregistration_of_another_incarnation_removes_nothing(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    assert await leave(namespace, removal(incarnation="0" * 16)) == (Status.STALE,)
    assert await kinds(namespace) == ["broker-registered"]


async def test_a_batch_has_a_status_for_each_request(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(A, 0))
    await worker.register(registration(B, 1))
    assert await leave(namespace, removal(B, 1), removal(C, 2), removal(A)) == (
        Status.DONE,
        Status.UNKNOWN,
        Status.DONE,
    )
    removed = [change.fields["group_removed"] for change in await history(namespace) if change.kind == "broker-removed"]
    assert removed == [False, True]


async def test_a_seat_can_be_named_instead_of_an_address(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    assert await leave(namespace, removal(address="", cause="operator")) == (Status.DONE,)
    assert (await newest(namespace)).fields["cause"] == "operator"


async def test_a_seat_under_another_cluster_is_unknown(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    assert await leave(namespace, Removal("west", "broker-a", 0)) == (Status.UNKNOWN,)


async def test_an_expiry_is_recorded_with_the_last_heartbeat(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    lease = await lead(namespace)
    await make_due(namespace, INSTANCE_NAME)
    found = await scan(namespace, lease)
    assert [due.instance_name for due in found.listed] == [INSTANCE_NAME]
    reply = await expire_brokers(namespace, lease, found.listed, caller=CALLER)
    assert reply.removed == (INSTANCE_NAME,)
    change = await newest(namespace)
    assert (change.kind, change.fields["cause"]) == ("broker-removed", "expired")
    assert change.fields["last_heartbeat_ms"] > 0


async def test_a_batch_stops_before_it_blocks_the_store_for_long(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    for n in range(250):
        await worker.register(registration(f"127.0.1.{n}:10911", broker=f"broker-{n}"))
    lease = await lead(namespace)
    await make_due(namespace, *(registration(f"127.0.1.{n}:10911").instance_name for n in range(250)))
    found = (await scan_deadlines(namespace, lease, caller=CALLER, limit=1000, brake=NO_BRAKE)).listed
    first = await expire_brokers(namespace, lease, found, caller=CALLER)
    assert first.handled == len(first.removed) == 200
    rest = await expire_brokers(namespace, lease, found[first.handled :], caller=CALLER)
    assert rest.handled == len(rest.removed) == 50


async def test_an_instance_with_a_heartbeat_after_the_scan_is_kept(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration())
    lease = await lead(namespace)
    await make_due(namespace, INSTANCE_NAME)
    found = await scan(namespace, lease)
    await worker.register(registration())
    reply = await expire_brokers(namespace, lease, found.listed, caller=CALLER)
    assert (reply.status, reply.removed) == (Status.UNCHANGED, ())


async def test_an_expiry_of_another_incarnation_removes_nothing(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    lease = await lead(namespace)
    await make_due(namespace, INSTANCE_NAME)
    reply = await expire_brokers(namespace, lease, [DueInstance(INSTANCE_NAME, "0" * 16, 1)], caller=CALLER)
    assert reply.removed == ()


async def test_every_script_of_a_former_leader_is_fenced(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    old = await lead(namespace, "worker-1")
    await namespace.client.call("DEL", namespace.keys.table("leader"))
    new = await lead(namespace, "worker-2")
    await make_due(namespace, INSTANCE_NAME)
    found = await scan(namespace, new)
    assert (await scan(namespace, old)).status is Status.FENCED
    assert (await expire_brokers(namespace, old, found.listed, caller=CALLER)).status is Status.FENCED
    assert (await hold_expiry(namespace, old, [], caller=CALLER)).status is Status.FENCED
    assert (await release_expiry(namespace, caller=CALLER, expire_due=False, lease=old)).status is Status.FENCED
    assert await remove_worker(namespace, "worker-9", caller=CALLER, lease=old) is Status.FENCED
    assert (await read_instances(namespace, [INSTANCE_NAME]))[INSTANCE_NAME] is not None


async def test_tokens_rise_even_when_the_counter_is_lost(namespace: Namespace) -> None:
    _, first = await acquire_lease(namespace, "worker-1", 30_000)
    await namespace.client.call("DEL", namespace.keys.table("leader"), namespace.keys.table("leader:token"))
    await namespace.client.call("PING")
    _, second = await acquire_lease(namespace, "worker-2", 30_000)
    assert second.token >= first.token
    await namespace.client.call("DEL", namespace.keys.table("leader"))
    _, third = await acquire_lease(namespace, "worker-2", 30_000)
    assert third.token > second.token


async def test_there_is_one_leader(namespace: Namespace) -> None:
    _, first = await acquire_lease(namespace, "worker-1", 30_000)
    is_leader, in_force = await acquire_lease(namespace, "worker-2", 30_000)
    assert (is_leader, in_force) == (False, first)
    assert in_force.worker == "worker-1"
    assert await renew_lease(namespace, first, 30_000)
    assert await release_lease(namespace, first)
    assert not await renew_lease(namespace, first, 30_000)
    assert not await release_lease(namespace, first)


async def test_a_hold_is_recorded_once_and_released_once(namespace: Namespace) -> None:
    lease = await lead(namespace)
    assert (await hold_expiry(namespace, lease, ["a", "b"], caller=CALLER)).status is Status.DONE
    assert (await hold_expiry(namespace, lease, ["a", "b", "c"], caller=CALLER)).status is Status.UNCHANGED
    assert (await release_expiry(namespace, caller=CALLER, expire_due=True)).status is Status.DONE
    assert (await release_expiry(namespace, caller=CALLER, expire_due=True)).status is Status.UNCHANGED
    assert await kinds(namespace) == ["expiry-held", "expiry-released"]


async def register_fleet(namespace: Namespace, *addresses: str) -> list[Removal]:
    for number, address in enumerate(addresses):
        await PlainWorker(namespace).register(registration(address, broker=f"broker-{number}"))
    return [Removal("east", f"broker-{number}", 0, address) for number, address in enumerate(addresses)]


async def test_the_removal_that_exceeds_the_share_is_held_and_changes_nothing(namespace: Namespace) -> None:
    first, second, third = [(one, CALLER) for one in await register_fleet(namespace, A, B, C)]
    reply = await unregister_brokers(namespace, [first, second, third], Brake(percent=34, minimum=2, window_ms=60_000))
    assert reply.statuses == (Status.DONE, Status.HELD, Status.HELD)
    assert reply.hold_began
    assert (await kinds(namespace))[-2:] == ["broker-removed", "expiry-held"]
    assert (await newest(namespace)).fields["brokers"] == ["broker-1"]


async def test_what_an_operator_removes_is_neither_held_nor_counted(namespace: Namespace) -> None:
    removals = [(replace(one, cause="operator"), CALLER) for one in await register_fleet(namespace, A, B, C)]
    reply = await unregister_brokers(namespace, removals, Brake(percent=0, minimum=1, window_ms=60_000))
    assert reply.statuses == (Status.DONE,) * 3
    assert await namespace.client.call("ZCARD", namespace.keys.table("removals")) == 0


async def test_a_broker_that_is_not_established_is_neither_held_nor_counted(namespace: Namespace) -> None:
    (first,) = await register_fleet(namespace, A)
    await make_old(namespace)
    await PlainWorker(namespace).register(registration(B, broker="broker-new"))
    new = Removal("east", "broker-new", 0, B)
    reply = await unregister_brokers(namespace, [(new, CALLER), (first, CALLER)], Brake(0, 1, 60_000))
    assert reply.statuses == (Status.DONE, Status.HELD)


async def test_a_broker_is_established_after_heartbeats_for_a_minute(namespace: Namespace) -> None:
    await register_fleet(namespace, A)
    await make_old(namespace)
    worker, name = PlainWorker(namespace), registration(B, broker="broker-new").instance_name
    await worker.register(registration(B, broker="broker-new"))
    table = namespace.keys.table("new-instances")
    await namespace.client.call("ZINCRBY", table, -59_000, name)
    await worker.register(registration(B, broker="broker-new"))
    assert await namespace.client.call("ZCARD", table) == 1
    await namespace.client.call("ZINCRBY", table, -1_000, name)
    await worker.register(registration(B, broker="broker-new"))
    assert await namespace.client.call("ZCARD", table) == 0


async def test_a_released_removal_is_due_at_the_next_scan_unless_the_broker_sends_a_heartbeat(
    namespace: Namespace,
) -> None:
    removals = await register_fleet(namespace, A, B)
    lease = await lead(namespace)
    await unregister_brokers(namespace, [(one, CALLER) for one in removals], Brake(0, 1, 60_000))
    await release_expiry(namespace, caller=CALLER, expire_due=True)
    await PlainWorker(namespace).register(registration(B, broker="broker-1"))
    found = await scan(namespace, lease)
    assert not found.has_to_hold
    reply = await expire_brokers(namespace, lease, found.listed, caller=CALLER)
    assert reply.removed == (INSTANCE_NAME,)


async def test_a_hold_that_the_leader_ends_removes_nothing(namespace: Namespace) -> None:
    removals = await register_fleet(namespace, A, B)
    lease = await lead(namespace)
    await unregister_brokers(namespace, [(one, CALLER) for one in removals], Brake(0, 1, 60_000))
    await release_expiry(namespace, caller=CALLER, expire_due=False, lease=lease)
    assert (await scan(namespace, lease)).due == 0


async def test_released_instances_do_not_count_towards_a_mass_expiry(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    for n, address in enumerate((A, B, C)):
        await worker.register(registration(address, broker=f"broker-{n}"))
    lease = await lead(namespace)
    await make_due(namespace, *(registration(address).instance_name for address in (A, B, C)))
    assert (await scan(namespace, lease)).counting == 3
    await hold_expiry(namespace, lease, [], caller=CALLER)
    await release_expiry(namespace, caller=CALLER, expire_due=True)
    found = await scan(namespace, lease)
    assert (found.due, found.counting, found.held_since_ms) == (3, 0, None)
    assert all(due.deadline <= found.released_to for due in found.listed)


async def test_a_replaced_address_does_not_count_towards_a_mass_expiry(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(A))
    await worker.register(registration(B))
    lease = await lead(namespace)
    await make_due(namespace, registration(A).instance_name)
    found = await scan(namespace, lease)
    assert (found.due, found.counting) == (1, 0)
    assert [due.counts for due in found.listed] == [False]
    before = len(await history(namespace))
    assert (await expire_brokers(namespace, lease, found.listed, caller=CALLER)).removed == (
        registration(A).instance_name,
    )
    assert await kinds(namespace, after=before) == ["group-changed"]


async def test_the_deadline_clock_is_paused_while_no_worker_is_alive(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    await worker.register(registration(timeout_ms=60_000))
    alive = await meta(namespace, "alive_ms")
    hour = 3_600_000
    # The last renewal of a worker's lease was an hour ago.
    await namespace.client.call("HSET", namespace.keys.meta, "alive_ms", alive - hour)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    assert hour <= await meta(namespace, "paused_ms") < hour + 5000
    change = await newest(namespace)
    assert change.kind == "expiry-paused"
    assert change.fields["to_ms"] - change.fields["from_ms"] >= hour


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
async def test_a_jump_of_the_stores_clock_moves_no_deadline(namespace: Namespace, jump_ms: int) -> None:
    """The last renewal seems to be an hour away, in either direction: the rest of each timeout does not change."""
    worker = PlainWorker(namespace)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    await worker.register(registration(timeout_ms=60_000))
    lease = await lead(namespace)
    before = (await deadline_of(namespace, INSTANCE_NAME)) - (await scan(namespace, lease)).clock
    await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", -jump_ms)
    # For the store, everything written before the jump is that much older.
    await namespace.client.call("ZINCRBY", namespace.keys.table("deadlines"), -jump_ms, INSTANCE_NAME)
    await namespace.client.call("HINCRBY", namespace.keys.meta, "paused_ms", 0)
    after = (await deadline_of(namespace, INSTANCE_NAME)) - (await scan(namespace, lease)).clock
    assert abs(before - after) < 5000


async def test_a_live_worker_is_not_removed(namespace: Namespace) -> None:
    await renew_worker_lease(namespace, "worker-2", 30_000, "{}", caller=CALLER)
    assert await remove_worker(namespace, "worker-2", caller=CALLER, lease=await lead(namespace)) is Status.UNCHANGED


async def test_an_outage_ends_no_lease_of_a_live_worker(namespace: Namespace) -> None:
    """No worker reached the store for an hour: all leases are that old, and none has ended because of it."""
    hour = 3_600_000
    for worker in ("worker-1", "worker-2"):
        await renew_worker_lease(namespace, worker, 10_000, "{}", caller=CALLER)
        await namespace.client.call("ZINCRBY", namespace.keys.table("workers"), -hour, worker)
    await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", -hour)
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    assert await remove_worker(namespace, "worker-2", caller=CALLER, lease=lease) is Status.UNCHANGED
    state = await read_service_state(namespace)
    assert 0 < state.workers["worker-2"] <= 10_000


MINUTE = 60_000


async def vanish(namespace: Namespace, lease: str, *workers: str) -> None:
    """The leader removes these workers, whose leases were renewed a minute ago. All brokers registered then, too."""
    for worker in workers:
        await renew_worker_lease(namespace, worker, 10_000, "{}", caller=CALLER)
        await namespace.client.call("ZINCRBY", namespace.keys.table("workers"), -MINUTE, worker)
    for table in ("heartbeats", "deadlines"):
        for instance_name in await namespace.client.call("ZRANGE", namespace.keys.table(table), 0, -1):
            await namespace.client.call("ZINCRBY", namespace.keys.table(table), -MINUTE, instance_name)
    for worker in workers:
        assert await remove_worker(namespace, worker, caller=CALLER, lease=lease) is Status.DONE


async def test_deadlines_are_paused_when_most_workers_vanished_and_no_heartbeat_arrives(
    namespace: Namespace,
) -> None:
    """A broken network may separate the store and the last worker from the whole fleet."""
    await PlainWorker(namespace).register(registration(timeout_ms=30_000))
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(namespace, lease, "worker-2", "worker-3")

    first, second = await scan(namespace, lease), await scan(namespace, lease)

    assert (first.cut_off, first.due, second.due) == (True, 0, 0)
    assert first.clock == second.clock
    assert 20_000 < await deadline_of(namespace, INSTANCE_NAME) - second.clock <= 30_000


async def test_deadlines_continue_where_they_were_when_a_heartbeat_arrives(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    for address, broker in ((A, "broker-a"), (B, "broker-b")):
        await worker.register(registration(address, broker=broker, timeout_ms=30_000))
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(namespace, lease, "worker-2", "worker-3")
    paused_at = (await scan(namespace, lease)).clock

    await worker.register(registration(B, broker="broker-b", timeout_ms=30_000))
    after = await scan(namespace, lease)

    assert (after.cut_off, after.due) == (False, 0)
    assert paused_at <= after.clock < paused_at + 5000
    change = await newest(namespace)
    assert change.kind == "expiry-paused"
    assert change.fields["to_ms"] - change.fields["from_ms"] >= MINUTE


async def test_deadlines_continue_when_enough_workers_are_back(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration(timeout_ms=30_000))
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(namespace, lease, "worker-2", "worker-3")
    assert (await scan(namespace, lease)).cut_off

    await renew_worker_lease(namespace, "worker-4", 10_000, "{}", caller=CALLER)

    assert not (await scan(namespace, lease)).cut_off


async def test_brokers_expire_when_half_of_the_workers_vanished(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration(timeout_ms=30_000))
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(namespace, lease, "worker-2")

    found = await scan(namespace, lease)

    assert (found.cut_off, found.due) == (False, 1)


async def test_a_heartbeat_after_workers_vanished_shows_that_the_others_are_not_cut_off(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(timeout_ms=30_000))
    lease = await lead(namespace)
    await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(namespace, lease, "worker-2", "worker-3")
    await worker.register(registration(B, broker="broker-b", timeout_ms=30_000))

    found = await scan(namespace, lease)

    assert (found.cut_off, found.due) == (False, 1)


async def test_an_address_under_two_clusters_keeps_its_seat_under_the_groups_own(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration())
    await worker.register(registration(cluster="west"))
    lease = await lead(namespace)
    other = registration(cluster="west").instance_name
    await make_due(namespace, other)
    reply = await expire_brokers(namespace, lease, (await scan(namespace, lease)).listed, caller=CALLER)
    assert reply.removed == (other,)
    group = (await read_groups(namespace, {"broker-a": None}))["broker-a"].group
    assert group is not None
    assert group.addresses == {0: A}


async def test_a_dead_leader_is_replaced_although_the_clock_was_set_back(namespace: Namespace) -> None:
    """The lease of the dead leader then ends an hour later. Another worker that asks for it shortens it."""
    _, lease = await acquire_lease(namespace, "worker-1", 3_600_000)
    is_ours, in_force = await acquire_lease(namespace, "worker-2", 100)
    assert (is_ours, in_force) == (False, lease)
    await until(lambda: _acquires(namespace, "worker-2"))


async def _acquires(namespace: Namespace, worker: str) -> bool:
    is_ours, _ = await acquire_lease(namespace, worker, 100)
    return is_ours


async def test_a_living_leader_keeps_a_lease_that_was_shortened(namespace: Namespace) -> None:
    _, lease = await acquire_lease(namespace, "worker-1", 3_600_000)
    await acquire_lease(namespace, "worker-2", 60_000)
    assert await renew_lease(namespace, lease, 3_600_000)
    assert await namespace.client.call("PTTL", namespace.keys.table("leader")) > 60_000
