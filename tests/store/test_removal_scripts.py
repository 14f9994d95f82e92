"""Departures, expiry, hold: what is compared before anything is removed."""

from typing import Any

import pytest

from routebook.store.book import Book
from routebook.store.lease import acquire_lease, release_lease, renew_lease
from routebook.store.presence import forget_worker, renew_worker
from routebook.store.reads import read_groups, read_instances, read_service_state
from routebook.store.removal import (
    Departure,
    DueMember,
    Scan,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
    unregister_brokers,
)
from routebook.store.statuses import Status
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, C, registration
from tests.support.scripts import deadline_of, history, kinds, make_due, meta, newest

MEMBER = registration(A).member


async def leads(book: Book, worker: str = "worker-1") -> str:
    ours, lease = await acquire_lease(book, worker, 30_000)
    assert ours
    return lease.whole


async def scan(book: Book, lease: str) -> Scan:
    return await scan_deadlines(book, lease, caller=CALLER, limit=100, window_ms=60_000)


def departure(address: str = A, broker_id: int = 0, incarnation: str = "", **more: Any) -> Departure:
    return Departure("east", "broker-a", broker_id, address, incarnation, **more)


async def leave(book: Book, *departures: Departure) -> tuple[Status, ...]:
    return (await unregister_brokers(book, [(one, CALLER) for one in departures])).statuses


async def test_an_unregistration_of_another_stay_removes_nothing(book: Book) -> None:
    await PlainWorker(book).register(registration())
    assert await leave(book, departure(incarnation="0" * 16)) == (Status.STALE,)
    assert await kinds(book) == ["broker-registered"]


async def test_a_batch_says_of_each_what_became_of_it(book: Book) -> None:
    worker = PlainWorker(book)
    await worker.register(registration(A, 0))
    await worker.register(registration(B, 1))
    assert await leave(book, departure(B, 1), departure(C, 2), departure(A)) == (
        Status.DONE,
        Status.UNKNOWN,
        Status.DONE,
    )
    removed = [change.fields["group_removed"] for change in await history(book) if change.kind == "broker-removed"]
    assert removed == [False, True]


async def test_a_seat_can_be_named_instead_of_an_address(book: Book) -> None:
    await PlainWorker(book).register(registration())
    assert await leave(book, departure(address="", cause="operator")) == (Status.DONE,)
    assert (await newest(book)).fields["cause"] == "operator"


async def test_a_seat_under_another_cluster_is_not_in_the_book(book: Book) -> None:
    await PlainWorker(book).register(registration())
    assert await leave(book, Departure("west", "broker-a", 0)) == (Status.UNKNOWN,)


async def test_what_is_due_expires_and_the_history_says_when_it_was_heard(book: Book) -> None:
    await PlainWorker(book).register(registration())
    lease = await leads(book)
    await make_due(book, MEMBER)
    found = await scan(book, lease)
    assert [due.member for due in found.members] == [MEMBER]
    reply = await expire_brokers(book, lease, found.members, caller=CALLER)
    assert reply.removed == (MEMBER,)
    change = await newest(book)
    assert (change.kind, change.fields["cause"]) == ("broker-removed", "expired")
    assert change.fields["last_heartbeat_ms"] > 0


async def test_a_batch_stops_before_it_blocks_the_store_for_long(book: Book) -> None:
    worker = PlainWorker(book)
    for n in range(250):
        await worker.register(registration(f"127.0.1.{n}:10911", broker=f"broker-{n}"))
    lease = await leads(book)
    await make_due(book, *(registration(f"127.0.1.{n}:10911").member for n in range(250)))
    found = (await scan_deadlines(book, lease, caller=CALLER, limit=1000, window_ms=0)).members
    first = await expire_brokers(book, lease, found, caller=CALLER)
    assert first.looked_at == len(first.removed) == 200
    rest = await expire_brokers(book, lease, found[first.looked_at :], caller=CALLER)
    assert rest.looked_at == len(rest.removed) == 50


async def test_who_was_heard_since_the_scan_stays(book: Book) -> None:
    worker = PlainWorker(book)
    await worker.register(registration())
    lease = await leads(book)
    await make_due(book, MEMBER)
    found = await scan(book, lease)
    await worker.register(registration())
    reply = await expire_brokers(book, lease, found.members, caller=CALLER)
    assert (reply.status, reply.removed) == (Status.UNCHANGED, ())


async def test_another_stay_at_the_same_address_stays_even_if_it_is_due(book: Book) -> None:
    await PlainWorker(book).register(registration())
    lease = await leads(book)
    await make_due(book, MEMBER)
    reply = await expire_brokers(book, lease, [DueMember(MEMBER, "0" * 16, 1)], caller=CALLER)
    assert reply.removed == ()


async def test_an_older_leader_is_refused_everything(book: Book) -> None:
    await PlainWorker(book).register(registration())
    old = await leads(book, "worker-1")
    await book.client.call("DEL", book.keys.table("leader"))
    new = await leads(book, "worker-2")
    await make_due(book, MEMBER)
    found = await scan(book, new)
    assert (await scan(book, old)).status is Status.FENCED
    assert (await expire_brokers(book, old, found.members, caller=CALLER)).status is Status.FENCED
    assert (await hold_expiry(book, old, [], caller=CALLER)).status is Status.FENCED
    assert (await release_expiry(book, caller=CALLER, let_go=False, lease=old)).status is Status.FENCED
    assert await forget_worker(book, "worker-9", caller=CALLER, lease=old) is Status.FENCED
    assert (await read_instances(book, [MEMBER]))[MEMBER] is not None


async def test_tokens_rise_even_when_the_counter_is_lost(book: Book) -> None:
    _, first = await acquire_lease(book, "worker-1", 30_000)
    await book.client.call("DEL", book.keys.table("leader"), book.keys.table("leader:token"))
    await book.client.call("PING")
    _, second = await acquire_lease(book, "worker-2", 30_000)
    assert second.token >= first.token
    await book.client.call("DEL", book.keys.table("leader"))
    _, third = await acquire_lease(book, "worker-2", 30_000)
    assert third.token > second.token


async def test_there_is_one_leader(book: Book) -> None:
    _, first = await acquire_lease(book, "worker-1", 30_000)
    ours, inforce = await acquire_lease(book, "worker-2", 30_000)
    assert (ours, inforce) == (False, first)
    assert inforce.worker == "worker-1"
    assert await renew_lease(book, first, 30_000)
    assert await release_lease(book, first)
    assert not await renew_lease(book, first, 30_000)
    assert not await release_lease(book, first)


async def test_a_hold_is_told_once_and_lifted_once(book: Book) -> None:
    lease = await leads(book)
    assert (await hold_expiry(book, lease, ["a", "b"], caller=CALLER)).status is Status.DONE
    assert (await hold_expiry(book, lease, ["a", "b", "c"], caller=CALLER)).status is Status.UNCHANGED
    assert (await release_expiry(book, caller=CALLER, let_go=True)).status is Status.DONE
    assert (await release_expiry(book, caller=CALLER, let_go=True)).status is Status.UNCHANGED
    assert await kinds(book) == ["expiry-held", "expiry-released"]


async def test_those_released_no_longer_count_as_a_mass(book: Book) -> None:
    worker = PlainWorker(book)
    for n, address in enumerate((A, B, C)):
        await worker.register(registration(address, broker=f"broker-{n}"))
    lease = await leads(book)
    await make_due(book, *(registration(address).member for address in (A, B, C)))
    assert (await scan(book, lease)).counting == 3
    await hold_expiry(book, lease, [], caller=CALLER)
    await release_expiry(book, caller=CALLER, let_go=True)
    found = await scan(book, lease)
    assert (found.due, found.counting, found.held_since_ms) == (3, 0, None)
    assert all(due.deadline <= found.released_to for due in found.members)


async def test_a_replaced_address_does_not_count_as_a_broker_that_fell_silent(book: Book) -> None:
    worker = PlainWorker(book)
    await worker.register(registration(A))
    await worker.register(registration(B))
    lease = await leads(book)
    await make_due(book, registration(A).member)
    found = await scan(book, lease)
    assert (found.due, found.counting) == (1, 0)
    assert [due.holds_seat for due in found.members] == [False]
    before = len(await history(book))
    assert (await expire_brokers(book, lease, found.members, caller=CALLER)).removed == (registration(A).member,)
    assert await kinds(book, after=before) == ["group-changed"]


async def test_the_deadline_clock_stops_while_nobody_could_hear(book: Book) -> None:
    worker = PlainWorker(book)
    await renew_worker(book, "worker-1", 30_000, "{}", caller=CALLER)
    await worker.register(registration(timeout_ms=60_000))
    alive = await meta(book, "alive_ms")
    hour = 3_600_000
    # An hour in which no worker gave a sign of life, as the store remembers it.
    await book.client.call("HSET", book.keys.meta, "alive_ms", alive - hour)
    await renew_worker(book, "worker-1", 30_000, "{}", caller=CALLER)
    assert hour <= await meta(book, "deaf_ms") < hour + 5000
    change = await newest(book)
    assert change.kind == "blind"
    assert change.fields["to_ms"] - change.fields["from_ms"] >= hour


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
async def test_a_leap_of_the_servers_clock_moves_no_deadline(book: Book, leap_ms: int) -> None:
    """The sign of life seems to be an hour away, either way: what is left of each timeout is what it was."""
    worker = PlainWorker(book)
    await renew_worker(book, "worker-1", 30_000, "{}", caller=CALLER)
    await worker.register(registration(timeout_ms=60_000))
    lease = await leads(book)
    before = (await deadline_of(book, MEMBER)) - (await scan(book, lease)).clock
    await book.client.call("HINCRBY", book.keys.meta, "alive_ms", -leap_ms)
    # Time went on by the leap for the server: what was written before lies that far back.
    await book.client.call("ZINCRBY", book.keys.table("deadlines"), -leap_ms, MEMBER)
    await book.client.call("HINCRBY", book.keys.meta, "deaf_ms", 0)
    after = (await deadline_of(book, MEMBER)) - (await scan(book, lease)).clock
    assert abs(before - after) < 5000


async def test_a_worker_that_lives_is_not_forgotten(book: Book) -> None:
    await renew_worker(book, "worker-2", 30_000, "{}", caller=CALLER)
    assert await forget_worker(book, "worker-2", caller=CALLER, lease=await leads(book)) is Status.UNCHANGED


async def test_an_outage_ends_no_lease_of_a_living_worker(book: Book) -> None:
    """An hour in which nobody reached the store: all leases were written that long ago, and none has ended by it."""
    hour = 3_600_000
    for worker in ("worker-1", "worker-2"):
        await renew_worker(book, worker, 10_000, "{}", caller=CALLER)
        await book.client.call("ZINCRBY", book.keys.table("workers"), -hour, worker)
    await book.client.call("HINCRBY", book.keys.meta, "alive_ms", -hour)
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    assert await forget_worker(book, "worker-2", caller=CALLER, lease=lease) is Status.UNCHANGED
    state = await read_service_state(book)
    assert 0 < state.workers["worker-2"] <= 10_000


MINUTE = 60_000


async def vanish(book: Book, lease: str, *workers: str) -> None:
    """Their last sign of life came a minute ago, and so did everybody's last registration; the leader has noticed."""
    for worker in workers:
        await renew_worker(book, worker, 10_000, "{}", caller=CALLER)
        await book.client.call("ZINCRBY", book.keys.table("workers"), -MINUTE, worker)
    for table in ("heartbeats", "deadlines"):
        for member in await book.client.call("ZRANGE", book.keys.table(table), 0, -1):
            await book.client.call("ZINCRBY", book.keys.table(table), -MINUTE, member)
    for worker in workers:
        assert await forget_worker(book, worker, caller=CALLER, lease=lease) is Status.DONE


async def test_deadlines_stand_still_when_most_workers_vanished_and_nobody_was_heard_since(book: Book) -> None:
    """The store and the last worker may be on the one side of a network that broke, the whole fleet on the other."""
    await PlainWorker(book).register(registration(timeout_ms=30_000))
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(book, lease, "worker-2", "worker-3")

    first, second = await scan(book, lease), await scan(book, lease)

    assert (first.cut_off, first.due, second.due) == (True, 0, 0)
    assert first.clock == second.clock
    assert 20_000 < await deadline_of(book, MEMBER) - second.clock <= 30_000


async def test_deadlines_go_on_where_they_stood_when_a_broker_is_heard(book: Book) -> None:
    worker = PlainWorker(book)
    for address, broker in ((A, "broker-a"), (B, "broker-b")):
        await worker.register(registration(address, broker=broker, timeout_ms=30_000))
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(book, lease, "worker-2", "worker-3")
    stood_at = (await scan(book, lease)).clock

    await worker.register(registration(B, broker="broker-b", timeout_ms=30_000))
    after = await scan(book, lease)

    assert (after.cut_off, after.due) == (False, 0)
    assert stood_at <= after.clock < stood_at + 5000
    change = await newest(book)
    assert change.kind == "blind"
    assert change.fields["to_ms"] - change.fields["from_ms"] >= MINUTE


async def test_deadlines_go_on_when_as_many_workers_are_back(book: Book) -> None:
    await PlainWorker(book).register(registration(timeout_ms=30_000))
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(book, lease, "worker-2", "worker-3")
    assert (await scan(book, lease)).cut_off

    await renew_worker(book, "worker-4", 10_000, "{}", caller=CALLER)

    assert not (await scan(book, lease)).cut_off


async def test_half_of_the_workers_may_die_with_their_brokers(book: Book) -> None:
    await PlainWorker(book).register(registration(timeout_ms=30_000))
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(book, lease, "worker-2")

    found = await scan(book, lease)

    assert (found.cut_off, found.due) == (False, 1)


async def test_who_was_heard_after_they_vanished_proves_that_we_can_hear(book: Book) -> None:
    worker = PlainWorker(book)
    await worker.register(registration(timeout_ms=30_000))
    lease = await leads(book)
    await renew_worker(book, "worker-1", 10_000, "{}", caller=CALLER)
    await vanish(book, lease, "worker-2", "worker-3")
    await worker.register(registration(B, broker="broker-b", timeout_ms=30_000))

    found = await scan(book, lease)

    assert (found.cut_off, found.due) == (False, 1)


async def test_one_address_under_two_clusters_keeps_its_seat_in_the_groups_own(book: Book) -> None:
    worker = PlainWorker(book)
    await worker.register(registration())
    await worker.register(registration(cluster="west"))
    lease = await leads(book)
    other = registration(cluster="west").member
    await make_due(book, other)
    reply = await expire_brokers(book, lease, (await scan(book, lease)).members, caller=CALLER)
    assert reply.removed == (other,)
    group = (await read_groups(book, {"broker-a": None}))["broker-a"].group
    assert group is not None
    assert group.addresses == {0: A}
