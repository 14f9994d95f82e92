"""A decision that came late removes nobody: 10 000 removals race against brokers that speak up."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from routebook.model.broker import Registration
from routebook.model.names import split_instance_name
from routebook.model.topic import QueueData
from routebook.store.namespace import Namespace, Status
from routebook.store.registration import QueueDifference, heartbeat_broker, register_broker, touch_broker
from routebook.store.removal import (
    Departure,
    DueInstance,
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

ROUNDS, MEMBERS, MEMBERS_PER_BATCH = 10, 1000, 7
DIGEST = "d" * 32

T = TypeVar("T")


def broker(number: int) -> Registration:
    """Alone in its group: whoever wipes it wipes group and queues too."""
    return Registration(
        cluster="east",
        broker=f"broker-{number}",
        broker_id=0,
        address=f"127.0.{number // 250}.{number % 250 + 1}:10911",
        topics={"orders": QueueData()},
        full=True,
    )


async def register(namespace: Namespace, history: str, said: Registration, session: SessionMark = NO_SESSION) -> Status:
    """In one step: a group of one is either as it was, for which touch is enough, or not there."""
    touched = await touch_broker(namespace, said, caller=CALLER, digest=DIGEST, session=session)
    if touched.status is Status.UNCHANGED:
        return touched.status
    reply = await register_broker(
        namespace,
        said,
        QueueDifference(new=said.topics),
        caller=CALLER,
        timeout_ms=120_000,
        digest=DIGEST,
        base=(history, 0),
        replaces_known=True,
        session=session,
    )
    return reply.status


async def speak(namespace: Namespace, history: str, said: Registration) -> bool:
    """As a broker does: a heartbeat, and a registration when told that it is unknown. True: it was never removed."""
    reply = await heartbeat_broker(namespace, said.cluster, said.broker, 0, caller=CALLER, address=said.address)
    if reply.status is Status.UNCHANGED:
        return True
    assert await register(namespace, history, said) is Status.DONE
    return False


async def age(namespace: Namespace, instance_names: Sequence[Registration]) -> None:
    """All of them have been silent for too long."""
    pairs = [word for said in instance_names for word in (0, said.instance_name)]
    await namespace.client.call("ZADD", namespace.keys.table("deadlines"), "XX", *pairs)


async def fleet_of(namespace: Namespace, numbers: range) -> tuple[list[Registration], str]:
    history = (await open_namespace(namespace)).history
    fleet = [broker(number) for number in numbers]
    statuses = await asyncio.gather(*(register(namespace, history, said) for said in fleet))
    assert set(statuses) == {Status.DONE}
    return fleet, history


async def assert_all_stand(namespace: Namespace, fleet: list[Registration]) -> None:
    seats = await namespace.client.pipeline(
        [("HGET", namespace.keys.of("broker", said.broker), "addr:0") for said in fleet]
    )
    assert [seat.decode() if seat else None for seat in seats] == [said.address for said in fleet]
    queues = await namespace.client.pipeline([("HLEN", namespace.keys.of("queues", said.broker)) for said in fleet])
    assert set(queues) == {1}
    deadlines = namespace.keys.table("deadlines")
    due = await namespace.client.pipeline([("ZSCORE", deadlines, said.instance_name) for said in fleet])
    assert all(due)


async def lead(namespace: Namespace) -> Lease:
    is_mine, lease = await acquire_lease(namespace, "worker-1", 600_000)
    assert is_mine
    return lease


async def scan(namespace: Namespace, lease: Lease, limit: int = MEMBERS) -> tuple[DueInstance, ...]:
    return (await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=limit, window_ms=0)).listed


def in_random_order(actions: list[Coroutine[Any, Any, Any]], seed: int) -> list[Coroutine[Any, Any, Any]]:
    random.Random(seed).shuffle(actions)
    return actions


async def test_an_expiry_that_races_with_a_sign_of_life_wipes_nobody_who_gave_one(namespace: Namespace) -> None:
    lease = await lead(namespace)
    removed = spared = 0
    for round_ in range(ROUNDS):
        fleet, history = await fleet_of(namespace, range(round_ * MEMBERS, (round_ + 1) * MEMBERS))
        await age(namespace, fleet)
        due = await scan(namespace, lease)
        assert len(due) == MEMBERS
        expiries: list[Coroutine[Any, Any, Any]] = [
            expire_brokers(namespace, lease.whole, due[first : first + MEMBERS_PER_BATCH], caller=CALLER)
            for first in range(0, MEMBERS, MEMBERS_PER_BATCH)
        ]
        results = await asyncio.gather(
            *in_random_order([*expiries, *(speak(namespace, history, said) for said in fleet)], round_)
        )
        spoken = [result for result in results if isinstance(result, bool)]
        gone = sum(len(result.removed) for result in results if not isinstance(result, bool))
        await assert_all_stand(namespace, fleet)
        assert spoken.count(False) <= gone
        removed, spared = removed + gone, spared + MEMBERS - gone
    assert removed + spared == ROUNDS * MEMBERS
    assert min(removed, spared) > MEMBERS, "the race was always won by the same side"


async def test_no_broker_is_lost_that_comes_back_while_its_old_connection_is_looked_into(namespace: Namespace) -> None:
    """One worker handles the end of a connection while another one hears the broker, 10 000 times."""
    removed = spared = 0
    for number in range(ROUNDS):
        fleet, history = await fleet_of(namespace, range(MEMBERS))
        old, new = f"old-{number}", SessionMark(f"new-{number}", 1)
        stays = await asyncio.gather(*(incarnation_of(namespace, said) for said in fleet))
        opened = [OpenedSession(said.instance_name, stay, 1) for said, stay in zip(fleet, stays, strict=True)]
        for part in batched(opened, 200):
            await open_sessions(namespace, old, part, caller=CALLER)
        ended = [EndedSession(one.instance_name, one.incarnation, 1, ago_ms=0) for one in opened]
        work: list[Coroutine[Any, Any, int]] = [
            lose(namespace, old, part) for part in batched(ended, MEMBERS_PER_BATCH)
        ]
        work += [come_back(namespace, history, said, new) for said in fleet]
        await asyncio.gather(*in_random_order(work, number))
        await assert_all_stand(namespace, fleet)
        gone = sum(stay != now for stay, now in zip(stays, await stays_of(namespace, fleet), strict=True))
        removed, spared = removed + gone, spared + MEMBERS - gone
        await unregister_brokers(namespace, [(departure(said), CALLER) for said in fleet])
    assert min(removed, spared) > MEMBERS / 4, "the race was always won by the same side"


def batched(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


async def lose(namespace: Namespace, worker: str, ended: Sequence[EndedSession]) -> int:
    """With no grace at all: the end of the connection and the removal follow upon each other."""
    losses = [loss for _, loss in await close_sessions(namespace, worker, ended) if loss]
    return len((await unregister_brokers(namespace, [(one.departure(), CALLER) for one in losses])).statuses)


async def come_back(namespace: Namespace, history: str, said: Registration, session: SessionMark) -> int:
    """Over a connection to another worker. Until it is told that it is in the route table."""
    for _ in range(random.Random(said.address).randrange(4)):
        await incarnation_of(namespace, said)  # a removal takes two steps: so that both sides win at times
    while True:
        reply = await touch_broker(namespace, said, caller=CALLER, digest=DIGEST, session=session)
        if reply.status is Status.UNCHANGED or await register(namespace, history, said, session) is Status.DONE:
            return 1


async def stays_of(namespace: Namespace, fleet: Sequence[Registration]) -> list[str]:
    return await asyncio.gather(*(incarnation_of(namespace, said) for said in fleet))


async def test_an_expiry_decided_about_an_earlier_stay_removes_nobody(namespace: Namespace) -> None:
    """The deadline has passed again: only the incarnation tells the stays apart."""
    lease = await lead(namespace)
    fleet, history = await fleet_of(namespace, range(MEMBERS))
    await age(namespace, fleet)
    decided = await scan(namespace, lease)
    await unregister_brokers(namespace, [(departure(said), CALLER) for said in fleet])
    await asyncio.gather(*(register(namespace, history, said) for said in fleet))
    await age(namespace, fleet)
    while decided:
        reply = await expire_brokers(namespace, lease.whole, decided, caller=CALLER)
        assert (reply.status, reply.removed) == (Status.UNCHANGED, ())
        assert reply.looked_at > 0
        decided = decided[reply.looked_at :]
    await assert_all_stand(namespace, fleet)


async def test_a_lost_connection_of_an_earlier_stay_removes_nobody(namespace: Namespace) -> None:
    fleet, history = await fleet_of(namespace, range(MEMBERS))
    earlier = await asyncio.gather(*(incarnation_of(namespace, said) for said in fleet))
    await unregister_brokers(namespace, [(departure(said), CALLER) for said in fleet])
    await asyncio.gather(*(register(namespace, history, said) for said in fleet))
    departures = [
        (replace(departure(said, stay), cause="connection-lost", lost_ms=1), CALLER)
        for said, stay in zip(fleet, earlier, strict=True)
    ]
    reply = await unregister_brokers(namespace, departures)
    assert set(reply.statuses) == {Status.STALE}
    await assert_all_stand(namespace, fleet)


def departure(said: Registration, incarnation: str = "") -> Departure:
    return Departure(said.cluster, said.broker, said.broker_id, said.address, incarnation)


async def incarnation_of(namespace: Namespace, said: Registration) -> str:
    """Empty for one that is not in the route table."""
    return str(
        (await namespace.client.call("HGET", namespace.keys.of("instance", said.instance_name), "inc") or b"").decode()
    )


async def test_nothing_that_an_older_leader_sends_is_accepted(namespace: Namespace) -> None:
    old = await lead(namespace)
    fleet, _ = await fleet_of(namespace, range(10))
    await age(namespace, fleet)
    due = await scan(namespace, old)
    await namespace.client.call("DEL", namespace.keys.table("leader"))
    new = await lead(namespace)
    version = await namespace.client.call("HGET", namespace.keys.meta, "version")
    assert new.token > old.token
    assert (await expire_brokers(namespace, old.whole, due, caller=CALLER)).status is Status.FENCED
    assert (await scan_deadlines(namespace, old.whole, caller=CALLER, limit=10, window_ms=0)).status is Status.FENCED
    assert (await hold_expiry(namespace, old.whole, ["broker-1"], caller=CALLER)).status is Status.FENCED
    assert await remove_worker(namespace, "worker-1", caller=CALLER, lease=old.whole) is Status.FENCED
    assert not await renew_lease(namespace, old, 10_000)
    assert await namespace.client.call("HGET", namespace.keys.meta, "version") == version
    await assert_all_stand(namespace, fleet)
    reply = await expire_brokers(namespace, new.whole, due, caller=CALLER)
    assert [split_instance_name(instance_name)[1] for instance_name in reply.removed] == [
        split_instance_name(d.instance_name)[1] for d in due
    ]


@pytest.mark.parametrize("lost", [("leader",), ("leader", "leader:token")])
async def test_a_token_only_rises_even_when_the_counter_is_lost(namespace: Namespace, lost: tuple[str, ...]) -> None:
    tokens: list[int] = []
    for _ in range(20):
        tokens.append((await lead(namespace)).token)
        await namespace.client.call("DEL", *(namespace.keys.table(name) for name in lost))
        await asyncio.sleep(0.002)
    assert tokens == sorted(set(tokens))
