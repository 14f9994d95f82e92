"""Sessions: which instances have lost their last connection, and which worker investigates."""

from typing import Any

import pytest

from routebook.model.names import Caller
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import heartbeat_broker, touch_broker
from routebook.store.removal import UNLESS_CONNECTED, Removal, hold_expiry, unregister_brokers
from routebook.store.sessions import (
    EndedSession,
    LostConnection,
    OpenedSession,
    SessionMark,
    adopt_lost_connections,
    close_sessions,
    count_sessions,
    open_sessions,
    resolve_lost_connections,
)
from routebook.store.workers import WORKER_LEASE_MS, acquire_lease, remove_worker, renew_worker_lease
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, registration
from tests.support.scripts import NO_BRAKE, deadline_of, history, newest

INSTANCE_NAME = registration(A).instance_name


async def registered(namespace: Namespace, address: str = A, **changes: Any) -> str:
    return (await PlainWorker(namespace).register(registration(address, **changes))).incarnation


async def open_one(
    namespace: Namespace, worker: str, incarnation: str, stamp: int = 1, instance_name: str = INSTANCE_NAME
) -> Status:
    return (await open_sessions(namespace, worker, [OpenedSession(instance_name, incarnation, stamp)], caller=CALLER))[
        0
    ]


async def close_one(
    namespace: Namespace, worker: str, incarnation: str, stamp: int = 1
) -> tuple[Status, LostConnection | None]:
    return (await close_sessions(namespace, worker, [EndedSession(INSTANCE_NAME, incarnation, stamp, ago_ms=0)]))[0]


def lost_departure(incarnation: str) -> Removal:
    return Removal("east", "broker-a", 0, A, incarnation, cause="connection-lost", lost_ms=1)


async def statuses_of(namespace: Namespace, *losses: LostConnection) -> tuple[Status, ...]:
    """Those of their removals."""
    removals = [(loss.removal(), CALLER) for loss in losses]
    return (await unregister_brokers(namespace, removals, NO_BRAKE)).statuses


async def lost_in_store(namespace: Namespace) -> int:
    return int(await namespace.client.call("HLEN", namespace.keys.table("lost")))


async def lead(namespace: Namespace, worker: str) -> str:
    return (await acquire_lease(namespace, worker, 30_000))[1].whole


async def test_a_lost_connection_removes_no_instance_with_another_session(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    await open_one(namespace, "worker-2", incarnation)
    assert await close_one(namespace, "worker-1", incarnation) == (Status.UNCHANGED, None)
    reply = await unregister_brokers(namespace, [(lost_departure(incarnation), CALLER)], NO_BRAKE)
    assert reply.statuses == (Status.STALE,)
    status, lost = await close_one(namespace, "worker-2", incarnation)
    assert status is Status.DONE
    assert lost
    assert await statuses_of(namespace, lost) == (Status.DONE,)
    assert (await newest(namespace)).fields["lost_ms"] == lost.lost_ms
    assert (await newest(namespace)).fields["cause"] == "connection-lost"


async def test_a_close_with_an_older_stamp_closes_nothing(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    await open_one(namespace, "worker-1", incarnation, stamp=5)
    assert await close_one(namespace, "worker-1", incarnation, stamp=4) == (Status.UNCHANGED, None)
    status, _ = await close_one(namespace, "worker-1", incarnation, stamp=5)
    assert status is Status.DONE


async def test_opening_and_closing_may_be_repeated(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    for _ in range(2):
        assert await open_one(namespace, "worker-1", incarnation) is Status.DONE
    for _ in range(2):
        status, lost = await close_one(namespace, "worker-1", incarnation)
        assert status is Status.DONE
        assert lost is not None
        assert (lost.cluster, lost.address, lost.broker, lost.broker_id) == ("east", A, "broker-a", 0)
    assert await lost_in_store(namespace) == 1


async def test_an_earlier_incarnation_opens_no_session_and_loses_none(namespace: Namespace) -> None:
    await registered(namespace)
    assert await open_one(namespace, "worker-1", "0" * 16) is Status.STALE
    assert await close_one(namespace, "worker-1", "0" * 16) == (Status.STALE, None)
    assert (await count_sessions(namespace, 0)).ended == 0


async def test_a_close_without_incarnation_closes_the_stored_session(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    assert await close_one(namespace, "worker-1", "") == (Status.STALE, None)
    await open_one(namespace, "worker-1", incarnation)
    status, lost = await close_one(namespace, "worker-1", "")
    assert (status, lost and lost.incarnation) == (Status.DONE, incarnation)


async def test_a_session_that_is_opened_again_ends_the_investigation(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    await open_one(namespace, "worker-1", incarnation)
    await close_one(namespace, "worker-1", incarnation)
    assert await lost_in_store(namespace) == 1
    await open_one(namespace, "worker-2", incarnation)
    assert await lost_in_store(namespace) == 0
    reply = await unregister_brokers(namespace, [(lost_departure(incarnation), CALLER)], NO_BRAKE)
    assert reply.statuses == (Status.STALE,)


async def lose(namespace: Namespace, worker: str, incarnation: str, *, ago_ms: int) -> LostConnection:
    """A session begins and ends."""
    await open_one(namespace, worker, incarnation)
    ((status, lost),) = await close_sessions(
        namespace, worker, [EndedSession(INSTANCE_NAME, incarnation, 1, ago_ms=ago_ms)]
    )
    assert status is Status.DONE
    assert lost
    return lost


@pytest.mark.parametrize("worker", ["worker-1", "worker-2"])
async def test_a_verdict_on_an_earlier_loss_removes_nothing(namespace: Namespace, worker: str) -> None:
    """The broker was restarted after the dial was refused, and lost its connection again: another loss, of the same
    incarnation, whose investigation has not ended. The model in docs/model found this.
    """
    incarnation = await registered(namespace)
    earlier = await lose(namespace, "worker-1", incarnation, ago_ms=5_000)
    later = await lose(namespace, worker, incarnation, ago_ms=0)
    assert await statuses_of(namespace, earlier) == (Status.STALE,)
    assert await lost_in_store(namespace) == 1
    assert await statuses_of(namespace, later) == (Status.DONE,)


async def test_resolving_an_earlier_loss_leaves_the_later_one_pending(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    earlier = await lose(namespace, "worker-1", incarnation, ago_ms=5_000)
    later = await lose(namespace, "worker-2", incarnation, ago_ms=0)
    assert await resolve_lost_connections(namespace, [earlier]) == 0
    assert await statuses_of(namespace, later) == (Status.DONE,)


async def test_registration_and_touch_open_a_session_in_the_same_step(namespace: Namespace) -> None:
    digest = "d" * 32
    incarnation = await registered(namespace)
    await namespace.client.call("HSET", namespace.keys.of("instance", INSTANCE_NAME), "digests", digest)
    reply = await touch_broker(
        namespace, registration(), caller=CALLER, digest=digest, session=SessionMark("worker-1", 7)
    )
    assert (reply.status, reply.incarnation) == (Status.UNCHANGED, incarnation)
    held = await namespace.client.call("HGET", namespace.keys.of("sessions", "worker-1"), INSTANCE_NAME)
    assert held == f"7 {incarnation}".encode()
    assert (await close_one(namespace, "worker-2", incarnation))[0] is Status.UNCHANGED


async def test_a_worker_counts_from_its_first_session_before_it_renews_its_lease(
    namespace: Namespace,
) -> None:
    incarnation = await registered(namespace)
    await open_one(namespace, "worker-9", incarnation)
    assert (await close_one(namespace, "worker-1", incarnation))[0] is Status.UNCHANGED
    assert not (await renew_worker_lease(namespace, "worker-9", 10_000, "{}", caller=CALLER)).is_known
    assert (await renew_worker_lease(namespace, "worker-9", 10_000, "{}", caller=CALLER)).is_known


async def test_a_renewal_reports_whether_removals_are_held(namespace: Namespace) -> None:
    _, lease = await acquire_lease(namespace, "worker-1", 10_000)
    assert not (await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)).is_held
    await hold_expiry(namespace, lease.whole, ["broker-a"], caller=CALLER)
    assert (await renew_worker_lease(namespace, "worker-1", 10_000, "{}", caller=CALLER)).is_held


async def test_a_verdict_ends_the_investigation_of_that_incarnation_only(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    _, lost = await close_one(namespace, "worker-1", incarnation)
    assert lost is not None
    assert await resolve_lost_connections(namespace, [LostConnection(INSTANCE_NAME, "broker-a", 0, "0" * 16, 1)]) == 0
    assert await resolve_lost_connections(namespace, [lost]) == 1
    assert await resolve_lost_connections(namespace, [lost]) == 0


async def test_the_leader_adopts_lost_connections_of_dead_workers_only(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    _, lost = await close_one(namespace, "worker-1", incarnation)
    lease = await lead(namespace, "worker-2")
    assert await adopt_lost_connections(namespace, lease, "worker-2", caller=CALLER) == (Status.UNCHANGED, ())
    await namespace.client.call("ZADD", namespace.keys.table("workers"), 1, "worker-1")
    assert await adopt_lost_connections(namespace, lease, "worker-2", caller=CALLER) == (Status.UNCHANGED, (lost,))
    # The leader investigates it from now on.
    assert await adopt_lost_connections(namespace, lease, "worker-2", caller=CALLER) == (Status.UNCHANGED, ())
    assert (await adopt_lost_connections(namespace, "1:worker-9:x", "worker-9", caller=CALLER))[0] is Status.FENCED


async def test_an_instance_that_unregistered_meanwhile_is_not_adopted(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    await close_one(namespace, "worker-1", incarnation)
    await unregister_brokers(namespace, [(Removal("east", "broker-a", 0, A), CALLER)], NO_BRAKE)
    assert await lost_in_store(namespace) == 0
    assert await adopt_lost_connections(namespace, await lead(namespace, "w"), "w", caller=CALLER) == (
        Status.UNCHANGED,
        (),
    )


async def test_sessions_that_ended_are_counted_once_each(namespace: Namespace) -> None:
    incarnation, other = await registered(namespace), await registered(namespace, B, broker_id=1)
    await open_one(namespace, "worker-1", incarnation)
    await open_one(namespace, "worker-2", other, instance_name=registration(B).instance_name)
    await close_one(namespace, "worker-1", incarnation)
    await close_one(namespace, "worker-1", incarnation)
    counts = await count_sessions(namespace, 0)
    assert (counts.ended, counts.open, counts.lost) == (1, 1, 1)
    assert (await count_sessions(namespace, 2**50)).ended == 0


async def test_brokers_of_a_dead_worker_get_a_full_timeout_from_its_last_renewal(
    namespace: Namespace,
) -> None:
    incarnation = await registered(namespace, timeout_ms=60_000)
    lease = await lead(namespace, "worker-1")
    await renew_worker_lease(namespace, "worker-2", WORKER_LEASE_MS, "{}", caller=CALLER)
    await open_one(namespace, "worker-2", incarnation)
    await namespace.client.call("ZADD", namespace.keys.table("deadlines"), "XX", 1, INSTANCE_NAME)
    lease_end = int(await namespace.client.call("ZINCRBY", namespace.keys.table("workers"), -15_000, "worker-2"))
    assert await remove_worker(namespace, "worker-2", caller=CALLER, lease=lease) is Status.DONE
    assert await deadline_of(namespace, INSTANCE_NAME) == lease_end - WORKER_LEASE_MS + 60_000
    assert await namespace.client.call("EXISTS", namespace.keys.of("sessions", "worker-2")) == 0


async def test_brokers_of_a_stopping_worker_get_a_full_timeout(namespace: Namespace) -> None:
    incarnation = await registered(namespace, timeout_ms=60_000)
    await renew_worker_lease(namespace, "worker-2", WORKER_LEASE_MS, "{}", caller=CALLER)
    await open_one(namespace, "worker-2", incarnation)
    before = await deadline_of(namespace, INSTANCE_NAME)
    await namespace.client.call("ZADD", namespace.keys.table("deadlines"), "XX", 1, INSTANCE_NAME)
    assert await remove_worker(namespace, "worker-2", caller=CALLER) is Status.DONE
    assert await deadline_of(namespace, INSTANCE_NAME) >= before


async def test_a_removed_worker_that_lives_learns_that_it_is_unknown(namespace: Namespace) -> None:
    await renew_worker_lease(namespace, "worker-2", 10_000, "{}", caller=CALLER)
    await namespace.client.call("ZADD", namespace.keys.table("workers"), 1, "worker-2")
    await remove_worker(namespace, "worker-2", caller=CALLER, lease=await lead(namespace, "worker-1"))
    assert not (await renew_worker_lease(namespace, "worker-2", 10_000, "{}", caller=CALLER)).is_known
    assert (await renew_worker_lease(namespace, "worker-2", 10_000, "{}", caller=CALLER)).is_known


@pytest.mark.parametrize("workers", [1, 100])
async def test_a_batch_stops_before_it_blocks_the_store_for_long(namespace: Namespace, workers: int) -> None:
    for n in range(workers):
        await renew_worker_lease(namespace, f"worker-{n}", 30_000, "{}", caller=CALLER)
    ended = [EndedSession(f"east/127.0.0.{n}:1", "0" * 16, 1, 0) for n in range(250)]
    results = await close_sessions(namespace, "worker-0", ended)
    assert 0 < len(results) <= 250
    assert (len(results) < 250) == (workers == 100)
    assert await history(namespace) == []


async def test_an_unregistration_unless_connected_spares_an_instance_with_a_session(namespace: Namespace) -> None:
    incarnation = await registered(namespace)
    removal = Removal("east", "broker-a", 0, A, UNLESS_CONNECTED)
    assert await open_one(namespace, "worker-1", incarnation) is Status.DONE
    await renew_worker_lease(namespace, "worker-1", WORKER_LEASE_MS, "{}", caller=CALLER)
    assert (await unregister_brokers(namespace, [(removal, CALLER)], NO_BRAKE)).statuses == (Status.STALE,)
    assert (await close_one(namespace, "worker-1", incarnation))[0] is Status.DONE
    assert (await unregister_brokers(namespace, [(removal, CALLER)], NO_BRAKE)).statuses == (Status.DONE,)
    assert (await unregister_brokers(namespace, [(removal, CALLER)], NO_BRAKE)).statuses == (Status.UNKNOWN,)


@pytest.mark.parametrize(
    ("source", "foreign", "status"),
    [
        ("10.0.0.1:5001", True, Status.UNCHANGED),
        ("10.0.0.9:5000", True, Status.REFUSED),
        ("10.0.0.9:5000", False, Status.UNCHANGED),
        ("[fd00::1]:5000", True, Status.REFUSED),
    ],
)
async def test_a_foreign_heartbeat_counts_only_from_the_host_of_the_session(
    source: str, foreign: bool, status: Status, namespace: Namespace
) -> None:
    incarnation = await registered(namespace)
    instance = namespace.keys.of("instance", INSTANCE_NAME)
    await namespace.client.call("HSET", instance, "source", "10.0.0.1:5000")

    async def heartbeat() -> Status:
        caller = Caller("anonymous", source)
        return (await heartbeat_broker(namespace, "east", "", 0, caller=caller, address=A, foreign=foreign)).status

    assert await heartbeat() is Status.UNCHANGED, "without a session, every heartbeat counts"
    assert await open_one(namespace, "worker-1", incarnation) is Status.DONE
    await namespace.client.call("ZADD", namespace.keys.table("heartbeats"), 5, INSTANCE_NAME)
    assert await heartbeat() is status
    after = int(await namespace.client.call("ZSCORE", namespace.keys.table("heartbeats"), INSTANCE_NAME))
    assert (after > 5) is (status is Status.UNCHANGED)


async def test_the_deadline_clock_pauses_from_the_first_session_on(namespace: Namespace) -> None:
    """In a store that lost its data, brokers may be back before a worker renews its lease, and then the worker dies."""
    incarnation = await registered(namespace)
    assert await open_one(namespace, "worker-1", incarnation) is Status.DONE
    hour = 3_600_000
    await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", -hour)
    await renew_worker_lease(namespace, "worker-2", WORKER_LEASE_MS, "{}", caller=CALLER)
    assert (await newest(namespace)).kind == "expiry-paused"
    paused_ms = int(await namespace.client.call("HGET", namespace.keys.meta, "paused_ms"))
    assert hour <= paused_ms < hour + 60_000
