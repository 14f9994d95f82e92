"""A removal that was decided too late removes no broker: 10,000 removals race with registrations."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from routebook.model.broker import QueueData, Registration
from routebook.model.names import split_instance_name
from routebook.replica.load import in_steps
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import QueueDifference, heartbeat_broker, register_broker, touch_broker
from routebook.store.removal import (
    DueInstance,
    Removal,
    expire_brokers,
    hold_expiry,
    scan_deadlines,
    unregister_brokers,
)
from routebook.store.sessions import (
    NO_SESSION,
    EndedSession,
    OpenedSession,
    SessionMark,
    close_sessions,
    open_sessions,
)
from routebook.store.workers import Lease, acquire_lease, open_namespace, remove_worker, renew_lease
from tests.properties.plain_worker import CALLER
from tests.support.figures import Figures
from tests.support.scripts import NO_BRAKE

ROUNDS, BROKERS, BROKERS_PER_BATCH = 10, 1000, 7
DIGEST = "d" * 32

T = TypeVar("T")


def broker(number: int) -> Registration:
    """The only broker of its group, so that its removal deletes the group and its queues as well."""
    return Registration(
        cluster="east",
        broker=f"broker-{number}",
        broker_id=0,
        address=f"127.0.{number // 250}.{number % 250 + 1}:10911",
        topics={"orders": QueueData()},
        full=True,
    )


async def register(
    namespace: Namespace, history: str, registration: Registration, session: SessionMark = NO_SESSION
) -> Status:
    """Registers in one step: the group of the broker is either unchanged, for `touch_broker`, or does not exist."""
    touched = await touch_broker(namespace, registration, caller=CALLER, digest=DIGEST, session=session)
    if touched.status is Status.UNCHANGED:
        return touched.status
    reply = await register_broker(
        namespace,
        registration,
        QueueDifference(new=registration.topics),
        caller=CALLER,
        timeout_ms=120_000,
        digest=DIGEST,
        base=(history, 0),
        replaces_known=True,
        run_steps=in_steps,
        session=session,
    )
    return reply.status


async def send_heartbeat(namespace: Namespace, history: str, registration: Registration) -> bool:
    """Sends a heartbeat as a broker does, and registers if the broker is unknown. Returns whether it was known."""
    reply = await heartbeat_broker(
        namespace, registration.cluster, registration.broker, 0, caller=CALLER, address=registration.address
    )
    if reply.status is Status.UNCHANGED:
        return True
    assert await register(namespace, history, registration) is Status.DONE
    return False


async def make_overdue(namespace: Namespace, fleet: Sequence[Registration]) -> None:
    """Moves their deadlines into the past."""
    pairs = [word for registration in fleet for word in (0, registration.instance_name)]
    await namespace.client.call("ZADD", namespace.keys.table("deadlines"), "XX", *pairs)


async def fleet_of(namespace: Namespace, numbers: range) -> tuple[list[Registration], str]:
    history = (await open_namespace(namespace)).history
    fleet = [broker(number) for number in numbers]
    statuses = await asyncio.gather(*(register(namespace, history, registration) for registration in fleet))
    assert set(statuses) == {Status.DONE}
    return fleet, history


async def assert_all_registered(namespace: Namespace, fleet: list[Registration]) -> int:
    """Returns their number."""
    seats = await namespace.client.pipeline(
        [("HGET", namespace.keys.of("broker", registration.broker), "addr:0") for registration in fleet]
    )
    assert [seat.decode() if seat else None for seat in seats] == [registration.address for registration in fleet]
    queues = await namespace.client.pipeline(
        [("HLEN", namespace.keys.of("queues", registration.broker)) for registration in fleet]
    )
    assert set(queues) == {1}
    deadlines = namespace.keys.table("deadlines")
    due = await namespace.client.pipeline([("ZSCORE", deadlines, registration.instance_name) for registration in fleet])
    assert all(due)
    return len(fleet)


async def lead(namespace: Namespace) -> Lease:
    is_mine, lease = await acquire_lease(namespace, "worker-1", 600_000)
    assert is_mine
    return lease


async def scan(namespace: Namespace, lease: Lease, limit: int = BROKERS) -> tuple[DueInstance, ...]:
    return (await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=limit, brake=NO_BRAKE)).listed


def in_random_order(actions: list[Coroutine[Any, Any, Any]], seed: int) -> list[Coroutine[Any, Any, Any]]:
    random.Random(seed).shuffle(actions)
    return actions


async def test_an_expiry_removes_no_broker_that_sends_a_heartbeat_at_the_same_time(
    namespace: Namespace, figure: Figures
) -> None:
    lease = await lead(namespace)
    removed = kept = intact = 0
    for round_ in range(ROUNDS):
        fleet, history = await fleet_of(namespace, range(round_ * BROKERS, (round_ + 1) * BROKERS))
        await make_overdue(namespace, fleet)
        due = await scan(namespace, lease)
        assert len(due) == BROKERS
        expiries: list[Coroutine[Any, Any, Any]] = [
            expire_brokers(namespace, lease.whole, due[first : first + BROKERS_PER_BATCH], caller=CALLER)
            for first in range(0, BROKERS, BROKERS_PER_BATCH)
        ]
        results = await asyncio.gather(
            *in_random_order(
                [*expiries, *(send_heartbeat(namespace, history, registration) for registration in fleet)], round_
            )
        )
        was_known = [result for result in results if isinstance(result, bool)]
        expired = sum(len(result.removed) for result in results if not isinstance(result, bool))
        intact += await assert_all_registered(namespace, fleet)
        assert was_known.count(False) <= expired
        removed, kept = removed + expired, kept + BROKERS - expired
    assert removed + kept == ROUNDS * BROKERS
    figure("expiries that raced with a heartbeat", removed + kept, at_least=10_000)
    figure("registrations that survived", intact, exactly=ROUNDS * BROKERS)
    assert min(removed, kept) > BROKERS, "the same side always won the race"


async def test_a_lost_connection_removes_no_broker_that_registers_at_the_same_time(
    namespace: Namespace, figure: Figures
) -> None:
    """One worker handles the end of a connection while the broker registers with another one, 10,000 times."""
    removed = kept = intact = 0
    for number in range(ROUNDS):
        fleet, history = await fleet_of(namespace, range(BROKERS))
        old, new = f"old-{number}", SessionMark(f"new-{number}", 1)
        before = await incarnations_of(namespace, fleet)
        opened = [
            OpenedSession(registration.instance_name, incarnation, 1)
            for registration, incarnation in zip(fleet, before, strict=True)
        ]
        for part in batched(opened, 200):
            await open_sessions(namespace, old, part, caller=CALLER)
        ended = [EndedSession(session.instance_name, session.incarnation, 1, ago_ms=0) for session in opened]
        work: list[Coroutine[Any, Any, int]] = [
            lose_connections(namespace, old, part) for part in batched(ended, BROKERS_PER_BATCH)
        ]
        work += [register_elsewhere(namespace, history, registration, new) for registration in fleet]
        await asyncio.gather(*in_random_order(work, number))
        intact += await assert_all_registered(namespace, fleet)
        after = await incarnations_of(namespace, fleet)
        changed = sum(former != current for former, current in zip(before, after, strict=True))
        removed, kept = removed + changed, kept + BROKERS - changed
        await unregister_brokers(namespace, [(removal(registration), CALLER) for registration in fleet], NO_BRAKE)
    assert min(removed, kept) > BROKERS / 4, "the same side always won the race"
    figure("lost connections that raced with a registration", removed + kept, at_least=10_000)
    figure("registrations that survived", intact, exactly=ROUNDS * BROKERS)


def batched(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


async def lose_connections(namespace: Namespace, worker: str, ended: Sequence[EndedSession]) -> int:
    """Without a grace time: the removal follows the end of the connection immediately."""
    losses = [loss for _, loss in await close_sessions(namespace, worker, ended) if loss]
    return len((await unregister_brokers(namespace, [(loss.removal(), CALLER) for loss in losses], NO_BRAKE)).statuses)


async def register_elsewhere(
    namespace: Namespace, history: str, registration: Registration, session: SessionMark
) -> int:
    """Registers over a connection to another worker, and repeats that until the broker is in the route table."""
    for _ in range(random.Random(registration.address).randrange(4)):
        await incarnation_of(
            namespace, registration
        )  # a delay: a removal takes two steps, and each side should win sometimes
    while True:
        reply = await touch_broker(namespace, registration, caller=CALLER, digest=DIGEST, session=session)
        if reply.status is Status.UNCHANGED or await register(namespace, history, registration, session) is Status.DONE:
            return 1


async def incarnations_of(namespace: Namespace, fleet: Sequence[Registration]) -> list[str]:
    return await asyncio.gather(*(incarnation_of(namespace, registration) for registration in fleet))


async def test_an_expiry_of_an_earlier_incarnation_removes_no_broker(namespace: Namespace) -> None:
    """The deadlines have passed again, so only the incarnation shows that the decision is outdated."""
    lease = await lead(namespace)
    fleet, history = await fleet_of(namespace, range(BROKERS))
    await make_overdue(namespace, fleet)
    due = await scan(namespace, lease)
    await unregister_brokers(namespace, [(removal(registration), CALLER) for registration in fleet], NO_BRAKE)
    await asyncio.gather(*(register(namespace, history, registration) for registration in fleet))
    await make_overdue(namespace, fleet)
    while due:
        reply = await expire_brokers(namespace, lease.whole, due, caller=CALLER)
        assert (reply.status, reply.removed) == (Status.UNCHANGED, ())
        assert reply.handled > 0
        due = due[reply.handled :]
    await assert_all_registered(namespace, fleet)


async def test_a_lost_connection_of_an_earlier_incarnation_removes_no_broker(namespace: Namespace) -> None:
    fleet, history = await fleet_of(namespace, range(BROKERS))
    earlier = await asyncio.gather(*(incarnation_of(namespace, registration) for registration in fleet))
    await unregister_brokers(namespace, [(removal(registration), CALLER) for registration in fleet], NO_BRAKE)
    await asyncio.gather(*(register(namespace, history, registration) for registration in fleet))
    removals = [
        (replace(removal(registration, incarnation), cause="connection-lost", lost_ms=1), CALLER)
        for registration, incarnation in zip(fleet, earlier, strict=True)
    ]
    reply = await unregister_brokers(namespace, removals, NO_BRAKE)
    assert set(reply.statuses) == {Status.STALE}
    await assert_all_registered(namespace, fleet)


def removal(registration: Registration, incarnation: str = "") -> Removal:
    return Removal(registration.cluster, registration.broker, registration.broker_id, registration.address, incarnation)


async def incarnation_of(namespace: Namespace, registration: Registration) -> str:
    """Empty for a broker that is not in the route table."""
    return str(
        (
            await namespace.client.call("HGET", namespace.keys.of("instance", registration.instance_name), "inc") or b""
        ).decode()
    )


async def test_no_script_of_a_former_leader_is_accepted(namespace: Namespace) -> None:
    old = await lead(namespace)
    fleet, _ = await fleet_of(namespace, range(10))
    await make_overdue(namespace, fleet)
    due = await scan(namespace, old)
    await namespace.client.call("DEL", namespace.keys.table("leader"))
    new = await lead(namespace)
    version = await namespace.client.call("HGET", namespace.keys.meta, "version")
    assert new.token > old.token
    assert (await expire_brokers(namespace, old.whole, due, caller=CALLER)).status is Status.FENCED
    assert (await scan_deadlines(namespace, old.whole, caller=CALLER, limit=10, brake=NO_BRAKE)).status is Status.FENCED
    assert (await hold_expiry(namespace, old.whole, ["broker-1"], caller=CALLER)).status is Status.FENCED
    assert await remove_worker(namespace, "worker-1", caller=CALLER, lease=old.whole) is Status.FENCED
    assert not await renew_lease(namespace, old, 10_000)
    assert await namespace.client.call("HGET", namespace.keys.meta, "version") == version
    await assert_all_registered(namespace, fleet)
    reply = await expire_brokers(namespace, new.whole, due, caller=CALLER)
    assert [split_instance_name(instance_name)[1] for instance_name in reply.removed] == [
        split_instance_name(d.instance_name)[1] for d in due
    ]


@pytest.mark.parametrize("lost", [("leader",), ("leader", "leader:token")])
async def test_a_fencing_token_rises_even_if_the_counter_is_lost(namespace: Namespace, lost: tuple[str, ...]) -> None:
    tokens: list[int] = []
    for _ in range(20):
        tokens.append((await lead(namespace)).token)
        await namespace.client.call("DEL", *(namespace.keys.table(name) for name in lost))
        await asyncio.sleep(0.002)
    assert tokens == sorted(set(tokens))
