"""Following a real store: which changes are applied and when, also after gaps, losses and reconnects."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from threading import Thread

import pytest

from routebook.errors import NotReadyError, NotSeenYetError
from routebook.model.broker import ORDER_TOPIC_NAMESPACE, QueueData
from routebook.replica import feed
from routebook.replica.replica import Replica
from routebook.store.administration import (
    delete_kv,
    delete_topic,
    put_kv,
    register_topic,
    set_setting,
    set_write_permission,
)
from routebook.store.namespace import Namespace
from routebook.store.reads import read_history_head
from tests.properties.plain_worker import CALLER
from tests.reference.build import mapping, topics, version
from tests.replica.build import A, B, C
from tests.replica.following import (
    Snapshot,
    caught_up,
    client_at,
    fall_back,
    following,
    following_at,
    new_replica,
    register,
    take_snapshot,
    unregister,
)
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import until


async def test_an_empty_store_is_opened_and_complete(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        assert replica.complete
        assert (replica.version, bool(replica.position.identity), bool(replica.history)) == (0, True, True)
        assert replica.current
        assert replica.route_bytes("orders") is None


async def test_existing_data_is_loaded_and_new_changes_are_followed(namespace: Namespace) -> None:
    await register(namespace, A)
    async with following(namespace) as replica:
        assert replica.version == 1
        assert set(replica.table.topics) == {"orders", "payments"}
        await replica.wait_for(await register(namespace, B, broker="broker-b", topics=topics("orders")), 20_000)
        assert list(replica.view.brokers_of("orders")) == ["broker-a", "broker-b"]
        assert replica.counts.loads == 1


async def test_a_suspended_worker_is_current_only_after_it_has_read_what_it_missed(
    namespace: Namespace, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it continues, replies have waited for it. They show that the store could be reached, not what it has now."""
    monkeypatch.setattr(feed, "WAIT_MS", 200)
    monkeypatch.setattr(feed, "IN_TOUCH_MS", 600)

    async def register_elsewhere() -> None:
        async with client_at(store_url, namespace.keys) as client:
            await register(Namespace(client, namespace.keys, namespace.scripts), A)

    async with following(namespace) as replica:
        await until(lambda: replica.current)
        elsewhere = Thread(target=lambda: asyncio.run(register_elsewhere()))
        elsewhere.start()
        elsewhere.join()  # nothing else runs in this process meanwhile
        time.sleep(0.8)
        while replica.route_bytes("orders") is None:
            assert not replica.current
            await asyncio.sleep(0)
        await until(lambda: replica.current)


async def test_the_lag_counts_changes_that_are_known_and_not_shown(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        await register(namespace, A)
        await caught_up(namespace, replica)
        assert replica.lag() == (0, 0.0)
        head = await read_history_head(namespace)
        replica.check_history_head(replace(head, version=head.version + 2))
        changes, seconds = replica.lag()
        assert (changes, seconds >= 0) == (2, True)
        await until(lambda: replica.lag()[1] > 0.05)
        for number in range(2):
            await put_kv(namespace, "n", f"k{number}", "v", caller=CALLER)
        await until(lambda: replica.lag() == (0, 0.0))


async def test_every_kind_of_change_is_applied(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        await register(namespace, A, mappings={"orders": mapping()}, filters=("f",), zone="z")
        await register(namespace, B, 1, acting_master=True)
        await register(namespace, C, broker="broker-c", mappings={"orders": mapping(bname="elsewhere")})
        await register_topic(namespace, "asked-for", {"broker-a": QueueData(2, 2)}, caller=CALLER)
        await delete_topic(namespace, "payments", caller=CALLER)
        await set_write_permission(namespace, "broker-c", writable=False, caller=CALLER)
        await put_kv(namespace, ORDER_TOPIC_NAMESPACE, "orders", "broker-a:8", caller=CALLER)
        await put_kv(namespace, "other", "gone", "x", caller=CALLER)
        await delete_kv(namespace, "other", "gone", caller=CALLER)
        await set_setting(namespace, "hold_percent", "44", "44", caller=CALLER)
        await unregister(namespace, "broker-a", A)
        await caught_up(namespace, replica)
        assert replica.counts.loads == 1
        async with following(namespace) as fresh:
            assert fresh.table.digest == replica.table.digest == replica.table.compute_digest()
        table = replica.table
        assert table.groups["broker-a"].addresses == {1: B}
        assert table.queues_of("broker-a")["orders"].perm == 4, "topics of the removed master are read-only"
        assert set(table.queues_of("broker-c").values()) == {QueueData(perm=4)}
        assert table.mappings_of_topic("orders").keys() == {"broker-a", "elsewhere"}
        assert table.kv == {ORDER_TOPIC_NAMESPACE: {"orders": "broker-a:8"}, "other": {}}
        assert table.settings == {"hold_percent": "44"}


async def test_a_removed_group_leaves_nothing_in_the_table(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        empty = replica.table.digest
        await register(namespace, A)
        await replica.wait_for(await unregister(namespace, "broker-a", A), 20_000)
        assert replica.route_bytes("orders") is None
        assert replica.table.digest == empty


async def test_replicas_fed_in_different_portions_have_the_same_digest(namespace: Namespace) -> None:
    async with following(namespace) as early:
        for count in range(20):
            await register(namespace, A, data_version=version(count), topics=topics(*(f"t-{n}" for n in range(count))))
            await register(namespace, B, 1, filters=(f"f{count}",))
        async with following(namespace) as late:
            await register(namespace, C, broker="broker-c")
            await unregister(namespace, "broker-a", B, broker_id=1)
            await caught_up(namespace, early, late)
            assert (
                early.table.digest == late.table.digest == early.table.compute_digest() == late.table.compute_digest()
            )
            assert early.counts.changes > late.counts.changes


async def test_no_registration_is_ever_half_visible(namespace: Namespace) -> None:
    """Each registration has the same queue numbers for all its topics, so a reader never sees different ones."""
    names = [f"topic-{n}" for n in range(50)]
    rounds = 40

    async def register_often(broker: str, address: str) -> None:
        for number in range(1, rounds + 1):
            registered_topics = topics(*names, read_queues=number)
            await register(namespace, address, broker=broker, data_version=version(number), topics=registered_topics)

    async with following(namespace) as replica, asyncio.TaskGroup() as group:
        writers = [group.create_task(register_often(f"broker-{a[-7]}", a)) for a in (A, B)]
        reads = 0
        while not all(writer.done() for writer in writers):
            for queues in (replica.view.queues_of(name) for name in replica.view.groups):
                assert queues.keys() == set(names)
                assert len({queue.read_queues for queue in queues.values()}) == 1
            reads += 1
            await asyncio.sleep(0)
        assert reads > rounds


async def test_a_change_in_many_parts_is_visible_at_once(namespace: Namespace) -> None:
    many = {f"topic-{n:05d}": QueueData() for n in range(5_500)}
    async with following(namespace) as replica:
        with replica.subscriptions.add() as subscription:
            await register(namespace, A, topics=many)
            first = await anext(subscription)
            assert len(replica.view.topics) == len(many)
            assert first.version == replica.version


async def test_a_burst_is_applied_in_portions_that_keep_the_entries_of_a_group_together(
    namespace: Namespace, store_url: str
) -> None:
    """A burst comes when the store could not be reached for a while. One step for all of it would stop lookups."""
    names = [f"topic-{number}" for number in range(2_500)]  # three entries
    brokers = [f"broker-{number:02}" for number in range(30)]
    portions: list[list[str | None]] = []
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        replica.listen(lambda changes, _table: portions.append([change.broker for change in changes]))
        proxy.hold_answers()
        for broker in brokers:
            written = await register(namespace, f"{A}0", broker=broker, topics=topics(*names))
        proxy.heal()
        await replica.wait_for(written, 30_000)
        assert [*chain.from_iterable(portions)] == [broker for broker in brokers for _ in range(3)]
        assert max(map(len, portions)) <= 6
        for broker in brokers:
            assert len([portion for portion in portions if broker in portion]) == 1
        assert replica.table.digest == replica.table.compute_digest()
        assert replica.counts.loads == 1


async def test_a_lookup_makes_no_call_to_the_store(namespace: Namespace, store_url: str) -> None:
    await register(namespace, A)
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        proxy.stall()
        for topic in ("orders", "payments", "unknown-topic"):
            assert (replica.route_bytes(topic) is None) == (topic == "unknown-topic")
        proxy.heal()


async def test_an_encoded_route_is_cached_until_it_changes(namespace: Namespace) -> None:
    await register(namespace, A)
    async with following(namespace) as replica:
        first = replica.route_bytes("orders")
        await replica.wait_for(await register(namespace, B, broker="broker-b", topics=topics("other")), 20_000)
        assert replica.route_bytes("orders") is first
        await replica.wait_for(await register(namespace, C, 1), 20_000)
        assert json.loads(replica.route_bytes("orders") or b"")["brokerDatas"][0]["brokerAddrs"] == {"0": A, "1": C}


async def test_settings_of_the_store_change_routes(namespace: Namespace) -> None:
    await register(namespace, A, acting_master=True)
    await register(namespace, B, 1, acting_master=True)
    await unregister(namespace, "broker-a", A)
    async with following(namespace) as replica:
        with replica.subscriptions.add("orders") as subscription:
            assert json.loads(replica.route_bytes("orders") or b"")["brokerDatas"][0]["brokerAddrs"] == {"1": B}
            await set_setting(namespace, "support_acting_master", "true", "true", caller=CALLER)
            assert (await anext(subscription)).topic == "orders"
            assert json.loads(replica.route_bytes("orders") or b"")["brokerDatas"][0]["brokerAddrs"] == {"0": B}


async def test_waiting_for_a_version_ends_with_it_or_with_an_error(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        waiting = asyncio.create_task(replica.wait_for(1, 5000))
        await register(namespace, A)
        await waiting
        with pytest.raises(NotSeenYetError) as caught:
            await replica.wait_for(99, 10)
        assert (caught.value.wanted, caught.value.seen) == (99, 1)


async def test_a_replica_that_is_not_loaded_is_not_ready(namespace: Namespace) -> None:
    replica = new_replica(namespace)
    with pytest.raises(NotReadyError):
        await replica.wait_complete(10)
    assert not replica.complete
    assert not replica.current


async def test_a_missing_entry_is_noticed_and_the_table_is_loaded_again(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        before = replica.history
        await replica.wait_for(await register(namespace, A), 20_000)
        # As after a change whose entry is missing.
        await namespace.client.call("HINCRBY", namespace.keys.meta, "version", 1)
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, replica)
        assert (replica.counts.gaps, replica.counts.loads) == (1, 2)
        assert (replica.history, replica.recovery) == (before, None)
        assert "broker-b" in replica.view.groups


async def test_a_missing_newest_entry_is_noticed_without_another_change(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        await namespace.client.call("HINCRBY", namespace.keys.meta, "version", 1)
        await caught_up(namespace, replica)
        assert replica.counts.gaps == 1


async def test_trimming_entries_that_were_read_is_no_gap(namespace: Namespace, store_url: str) -> None:
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await replica.wait_for(await register(namespace, A), 20_000)
        await namespace.client.call("XTRIM", namespace.keys.changes, "MAXLEN", 0)
        proxy.cut()
        await until(lambda: replica.counts.reconnects == 1)
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, replica)
        assert (replica.counts.loads, replica.counts.gaps, replica.counts.lost_tails) == (1, 0, 0)


async def test_a_reconnect_to_the_same_history_continues_without_a_load(namespace: Namespace, store_url: str) -> None:
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await replica.wait_for(await register(namespace, A), 20_000)
        proxy.cut()
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, replica)
        assert (replica.counts.loads, replica.counts.reconnects) == (1, 1)
        assert replica.current


async def test_after_a_reconnect_a_table_is_not_current_before_it_has_caught_up(
    namespace: Namespace, store_url: str
) -> None:
    """Otherwise a topic that was registered meanwhile would be answered with "no such topic"."""
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await replica.wait_for(await register(namespace, A), 20_000)
        await proxy.refuse()
        await until(lambda: not replica.current)
        await register(namespace, B, broker="broker-b")
        await proxy.accept()
        async with asyncio.timeout(30):
            while replica.version < 2:
                assert not replica.current
                await asyncio.sleep(0)
        await until(lambda: replica.current)
        assert (replica.counts.loads, replica.counts.reconnects) == (1, 1)


async def test_while_the_store_is_away_answers_continue_and_become_stale(namespace: Namespace, store_url: str) -> None:
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await replica.wait_for(await register(namespace, A), 20_000)
        known = replica.route_bytes("orders")
        await proxy.refuse()
        await until(lambda: replica.stale_ms() > 300)
        assert not replica.current
        assert replica.route_bytes("orders") == known
        await register(namespace, B, broker="broker-b")
        await proxy.accept()
        async with asyncio.timeout(30):
            await replica.wait_for(2, 20_000)
        await until(lambda: replica.stale_ms() == 0 and replica.current)
        assert replica.counts.loads == 1


@asynccontextmanager
async def following_past_a_snapshot(namespace: Namespace) -> AsyncIterator[tuple[Replica, Replica, Snapshot]]:
    """Two replicas, and the store as it was before the registration of broker-b, which both have seen."""
    async with following(namespace) as one, following(namespace) as other:
        await register(namespace, A)
        snapshot = await take_snapshot(namespace)
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, one, other)
        yield one, other, snapshot


async def test_lost_changes_begin_one_new_history(namespace: Namespace) -> None:
    async with following_past_a_snapshot(namespace) as (one, other, snapshot):
        before = one.history
        await fall_back(namespace, snapshot)
        await until(lambda: one.history != before and other.history != before)
        await caught_up(namespace, one, other)
        assert one.history == other.history
        assert one.version == 1
        assert one.counts.lost_tails + other.counts.lost_tails >= 1
        assert one.table.digest == other.table.digest
        assert one.route_bytes("orders") == other.route_bytes("orders")
        assert "broker-b" in one.view.groups, "a lost broker is shown until it is back"
        assert "broker-b" not in one.table.groups
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, one, other)
        assert "broker-b" in one.table.groups


async def test_a_history_that_was_left_and_has_returned_gets_a_new_name(namespace: Namespace) -> None:
    """The name that a new history got is lost as well, when the primary that had it is replaced."""
    async with following_past_a_snapshot(namespace) as (one, other, snapshot):
        names = [one.history]
        for _ in range(2):
            await fall_back(namespace, snapshot)
            await until(lambda: one.history not in names and other.history not in names)
            await caught_up(namespace, one, other)
            assert one.history == other.history
            names.append(one.history)


async def test_lost_changes_are_noticed_even_when_new_ones_reach_the_same_version(
    namespace: Namespace, store_url: str
) -> None:
    """Only the id of the last entry shows it: the version exists again, with another time."""
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await register(namespace, A)
        snapshot = await take_snapshot(namespace)
        await replica.wait_for(await register(namespace, B, broker="broker-b"), 20_000)
        before = replica.history
        await proxy.refuse()
        await fall_back(namespace, snapshot)
        await register(namespace, C, broker="broker-c")
        await register(namespace, C, 1, broker="broker-c", topics=topics("more", "topics"))
        await proxy.accept()
        await until(lambda: replica.history != before)
        await caught_up(namespace, replica)
        assert replica.counts.lost_tails == 1
        assert replica.view.groups.keys() == {"broker-a", "broker-b", "broker-c"}


async def test_lost_changes_are_noticed_even_when_new_ones_get_the_same_id(
    namespace: Namespace, store_url: str
) -> None:
    """While the store's clock is behind the last entry, all entries get the time of that one."""
    ahead = 4_000_000_000_000
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        await register(namespace, A)
        await namespace.client.call("HSET", namespace.keys.meta, "ms", ahead)
        await register(namespace, A, topics=topics("more"))
        snapshot = await take_snapshot(namespace)
        await replica.wait_for(await register(namespace, B, broker="broker-b"), 20_000)
        before, position = replica.history, replica.position
        await proxy.refuse()
        await fall_back(namespace, snapshot)
        assert await register(namespace, C, broker="broker-c") == position.version
        assert (await read_history_head(namespace)).ms == position.ms == ahead
        await proxy.accept()
        await until(lambda: replica.history != before)
        await caught_up(namespace, replica)
        assert replica.counts.lost_tails == 1
        assert replica.table.groups.keys() == {"broker-a", "broker-c"}


async def test_a_table_is_verified_again_after_a_reconnect(namespace: Namespace, store_url: str) -> None:
    """A registration waits for that: until then, the same version may be another one."""
    async with (
        FaultProxy.before(store_url) as proxy,
        following_at(proxy.url, namespace.keys, namespace.scripts) as replica,
    ):
        with pytest.raises(NotReadyError, match="has not compared"):
            await new_replica(namespace).wait_verified(10)
        before = await replica.wait_verified(0)
        proxy.cut()
        await until(lambda: replica.verified_epoch != before)
        assert await replica.wait_verified(20_000) > before


async def test_an_unreadable_entry_does_not_stop_the_replica(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        await replica.wait_for(await register(namespace, A), 20_000)
        head = await namespace.client.call("HMGET", namespace.keys.meta, "ms")
        await namespace.client.call("XADD", namespace.keys.changes, f"{int(head[0]) + 1}-2", "d", "not json")
        await namespace.client.call("HSET", namespace.keys.meta, "version", 2, "ms", int(head[0]) + 1)
        await register(namespace, B, broker="broker-b")
        await caught_up(namespace, replica)
        assert "broker-b" in replica.view.groups
