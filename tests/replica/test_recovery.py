"""After a loss readers see old and new data: new values win, and deletions apply to both."""

import asyncio
from typing import Any

from routebook.model.broker import PERM_READ, QueueData
from routebook.replica.load import Position
from routebook.replica.recovery import Recovery, carry_over
from routebook.replica.table import Table
from routebook.store.administration import delete_kv, delete_topic, put_kv, register_topic, set_setting
from routebook.store.history import Change
from routebook.store.namespace import Namespace
from routebook.store.recovery import restore_kv, restore_queues, restore_settings
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER
from tests.reference.build import mapping, topics, version
from tests.replica.build import A, B, C, group, image, instance, table_of
from tests.replica.following import (
    caught_up,
    fall_back,
    following,
    lose_everything,
    new_replica,
    register,
    take_snapshot,
    unregister,
)
from tests.support.waiting import until

NOTHING = image(None)
QUEUE = QueueData()


def change(kind: str, **fields: Any) -> Change:
    return Change(1, 1, kind, fields)


# -- one group


def test_a_seat_that_is_not_back_is_carried_over_with_the_queues() -> None:
    shown = image(group({0: A, 1: B}), ["orders", "payments"], mappings={"orders": mapping()})
    now = image(group({1: B}, zone="new"), {"orders": QueueData(4, 4)})
    merged = carry_over(shown, NOTHING, now)
    assert merged.group == group({0: A, 1: B}, zone="new")
    assert merged.queues == {"orders": QueueData(4, 4), "payments": QUEUE}
    assert merged.mappings == {"orders": mapping()}


def test_an_address_has_one_id_and_the_new_one_wins() -> None:
    shown = image(group({0: A, 1: B}))
    assert carry_over(shown, NOTHING, image(group({0: B}))).group == group({0: B})
    assert carry_over(shown, NOTHING, image(group({1: A}))).group == group({1: A})
    assert carry_over(shown, NOTHING, image(group({0: C}))).group == group({0: C, 1: B})


def test_objects_that_the_new_store_had_and_deleted_are_not_shown() -> None:
    shown = image(group({0: A, 1: B}), ["orders", "payments"])
    before, now = image(group({1: B}), ["orders"]), image(group({}), [])
    merged = carry_over(shown, before, now)
    assert merged.group == group({0: A})
    assert merged.queues == {"payments": QUEUE}


def test_a_removed_group_is_shown_while_other_seats_are_awaited() -> None:
    shown, before = image(group({0: A, 1: B}), ["orders"]), image(group({1: B}), [])
    assert carry_over(shown, before, NOTHING).group == group({0: A})
    alone = image(group({1: B}), ["orders"])
    assert carry_over(alone, before, NOTHING) == NOTHING


def test_an_image_of_some_topics_does_not_change_the_others() -> None:
    shown = image(group(), {"orders": QUEUE, "gone": QUEUE, "new": None}, all_queues=False)
    before = image(group(), {"orders": None, "gone": QUEUE, "new": None}, all_queues=False)
    now = image(group(), {"orders": None, "gone": None, "new": QUEUE}, all_queues=False)
    merged = carry_over(shown, before, now)
    assert (merged.queues, merged.all_queues) == ({"orders": QUEUE, "gone": None, "new": QUEUE}, False)


# -- deletions in the new history


def test_a_seat_removed_in_the_new_history_is_not_carried_over() -> None:
    shown = table_of(image(group({0: A, 1: B}), ["orders"]))
    shown.apply_instance(f"east/{A}", instance())
    recovery = Recovery(shown, 1000)
    gone = change("broker-removed", cluster="east", broker="broker-a", id=0, addr=A)
    assert recovery.delete(gone) == {"orders"}
    assert shown.groups["broker-a"].addresses == {1: B}
    assert not shown.instances


def test_a_topic_deleted_in_the_new_history_is_not_carried_over() -> None:
    shown = table_of(image(group(), ["orders", "payments"]))
    items = [{"t": "orders", "x": 1}, {"t": "payments", "r": 1, "w": 1, "p": 6, "f": 0}]
    assert Recovery(shown, 1000).delete(change("queues-changed", broker="broker-a", queues=items)) == {"orders"}
    assert set(shown.topics) == {"payments"}


def test_a_key_deleted_in_the_new_history_is_not_carried_over() -> None:
    shown = Table()
    shown.apply_kv("n", {"k": "v", "other": "v"})
    Recovery(shown, 1000).delete(change("kv-deleted", namespace="n", key="k"))
    Recovery(shown, 1000).delete(change("kv-deleted", namespace="unknown", key="k"))
    assert shown.kv == {"n": {"other": "v"}}


def test_an_address_that_moves_to_another_id_keeps_its_queues() -> None:
    """One batch removes its old seat and has the new one, without naming topics."""
    shown, now = table_of(image(group({1: A}), ["orders"])), table_of(image(group({1: A}), ["orders"]))
    recovery = Recovery(shown, 1000)
    recovery.delete(change("broker-removed", cluster="east", broker="broker-a", id=1, addr=A, cause="moved"))
    before = now.image_of("broker-a", ())
    after = image(group({0: A}), {}, all_queues=False)
    now.apply_group("broker-a", after)
    recovery.merge_group("broker-a", before, after)
    assert shown.digest == now.digest


# -- its end


async def test_a_recovery_lasts_until_carried_objects_are_no_longer_shown(namespace: Namespace) -> None:
    """Reads and writes happen between the steps, and deletions are recorded while a lost object is shown."""
    replica = new_replica(namespace)
    for history in ("before", "now"):
        lost = image(group(), ["orders"]) if history == "before" else image(group(), [])
        for _ in replica.replace(table_of(lost), Position("store", history, 1, 1)):
            pass
    steps = 0
    for _ in replica.end_recovery():
        assert (replica.recovery is None) == (replica.view is replica.table)
        steps += 1
    assert steps > 1
    assert "orders" not in replica.view.topics


def recovery_of_one_seat(window_ms: int = 100_000) -> tuple[Recovery, Table]:
    """A recovery that awaits one broker with one seat."""
    shown, now = table_of(image(group(), ["orders"])), Table()
    recovery = Recovery(shown, window_ms)
    for _ in recovery.rebase(Table(), now):
        pass
    return recovery, now


def register_again(recovery: Recovery, now: Table, *registered_topics: str) -> None:
    before = now.image_of("broker-a")
    now.apply_group("broker-a", image(group(), registered_topics))
    recovery.merge_group("broker-a", before, now.image_of("broker-a"))


def test_a_recovery_ends_when_all_seats_and_topics_are_back() -> None:
    """A broker may register its topics in several parts."""
    recovery, now = recovery_of_one_seat()
    assert recovery.state.awaited_seats == 1
    assert not recovery.is_over(now)
    register_again(recovery, now, "other")
    assert recovery.state.awaited_seats == 0
    assert not recovery.is_over(now)
    register_again(recovery, now, "orders", "other")
    assert recovery.is_over(now)


def test_only_topics_that_no_broker_registers_are_written_back() -> None:
    recovery, now = recovery_of_one_seat()
    recovery.shown.apply_group("broker-a", image(group(), {"asked-for": QueueData(by_request=True)}, all_queues=False))
    register_again(recovery, now, "other")
    assert recovery.carried_queues(now) == {"broker-a": {"asked-for": QueueData(by_request=True)}}


def test_a_recovery_ends_with_its_window() -> None:
    recovery, now = recovery_of_one_seat(window_ms=5000)
    recovery.spend(4999)
    assert not recovery.is_over(now)
    recovery.spend(1)
    assert recovery.is_over(now)


# -- against a store


async def test_after_an_empty_store_known_routes_are_shown_and_new_ones_win(namespace: Namespace) -> None:
    await register(namespace, A, mappings={"orders": mapping()})
    await register(namespace, B, broker="broker-b", topics=topics("orders", "billing"))
    async with following(namespace) as replica:
        old, route = replica.position.identity, replica.route_bytes("orders")
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        assert replica.route_bytes("orders") == route
        assert replica.is_recovering
        assert replica.recovery
        assert replica.recovery.state.awaited_seats == 2
        assert not replica.table.groups
        assert replica.counts.losses == 1
        await register(namespace, A, data_version=version(5), topics=topics("orders", read_queues=3))
        await caught_up(namespace, replica)
        assert replica.view.brokers_of("orders") == {"broker-a": QueueData(read_queues=3), "broker-b": QUEUE}
        assert replica.recovery.state.awaited_seats == 1
        assert set(replica.view.topics) == {"orders", "payments", "billing"}
        assert set(replica.table.topics) == {"orders"}


async def test_deletions_in_the_new_history_apply_to_carried_objects(namespace: Namespace) -> None:
    await register(namespace, A, topics=topics("orders", "payments"))
    await register(namespace, B, broker="broker-b", topics=topics("orders"))
    await put_kv(namespace, "n", "k", "v", caller=CALLER)
    async with following(namespace) as replica:
        old = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        await delete_topic(namespace, "payments", caller=CALLER, carried_by={"broker-a": "east"})
        await unregister(namespace, "broker-b", B, carried=True)
        await delete_kv(namespace, "n", "k", caller=CALLER, carried=True)
        await caught_up(namespace, replica)
        assert replica.view.brokers_of("orders").keys() == {"broker-a"}
        assert replica.route_bytes("payments") is None
        assert "broker-b" not in replica.view.groups
        assert "broker-b" not in replica.view.clusters["east"]
        assert not replica.view.kv.get("n")
        assert replica.table.digest == replica.table.compute_digest() == Table().digest


async def test_a_recovery_ends_when_carried_objects_are_written_back(
    namespace: Namespace,
) -> None:
    await register(namespace, A)
    await register_topic(namespace, "asked-for", {"broker-a": QueueData(2, 2)}, caller=CALLER)
    await put_kv(namespace, "n", "k", "v", caller=CALLER)
    await set_setting(namespace, "hold_percent", "44", "44", caller=CALLER)
    async with following(namespace) as replica:
        old = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        recovery = replica.recovery
        assert recovery
        assert recovery.carried_kv(replica.table) == {"n": {"k": "v"}}
        assert recovery.carried_settings(replica.table) == {"hold_percent": "44"}
        assert recovery.carried_queues(replica.table) == {}, "its broker is not back"
        await restore_kv(namespace, "n", {"k": "v"}, caller=CALLER)
        await restore_settings(namespace, {"hold_percent": ("44", "44")}, caller=CALLER)
        await register(namespace, A)
        await caught_up(namespace, replica)
        carried = recovery.carried_queues(replica.table)
        assert carried == {"broker-a": {"asked-for": QueueData(2, 2, by_request=True)}}
        revision = replica.table.groups["broker-a"].revision
        await restore_queues(namespace, "broker-a", carried["broker-a"], revision=revision, caller=CALLER)
        await until(lambda: not replica.is_recovering)
        assert replica.view is replica.table
        assert "asked-for" in replica.view.topics


async def test_a_lost_topic_is_shown_until_its_broker_registers_it_again(namespace: Namespace) -> None:
    """A failover has lost the registration that added it, and the seat is older. Brokers register every 30 s."""
    await register(namespace, A)
    snapshot = await take_snapshot(namespace)
    added = topics("orders", "added")
    await register(namespace, A, data_version=version(2), topics=added, mappings={"orders": mapping()})
    async with following(namespace) as replica:
        await fall_back(namespace, snapshot)
        await until(lambda: replica.counts.lost_tails == 1 and replica.is_recovering)
        assert replica.recovery
        await asyncio.sleep(1.5)  # the history is read every second
        assert replica.is_recovering
        assert replica.route_bytes("added")
        assert replica.view.mappings_of_broker("broker-a") == {"orders": mapping()}
        await register(namespace, A, data_version=version(2), topics=added, mappings={"orders": mapping()})
        await until(lambda: not replica.is_recovering)
        assert replica.view is replica.table
        assert "added" in replica.table.topics


async def test_objects_that_do_not_return_are_dropped_after_the_window(namespace: Namespace) -> None:
    await register(namespace, A)
    async with following(namespace, recovery_window_ms=1500) as replica:
        old = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        with replica.subscriptions.add("orders") as subscription:
            assert replica.route_bytes("orders")
            await until(lambda: not replica.is_recovering)
            assert replica.route_bytes("orders") is None
            assert (await anext(subscription)).topic == "orders"


async def test_a_second_loss_carries_over_what_is_shown(namespace: Namespace) -> None:
    await register(namespace, A, topics=topics("orders"))
    async with following(namespace) as replica:
        first = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != first)
        await register(namespace, B, broker="broker-b", topics=topics("billing"))
        await caught_up(namespace, replica)
        second = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity not in {first, second})
        assert set(replica.view.topics) == {"orders", "billing"}
        assert replica.recovery
        assert replica.recovery.state.awaited_seats == 2


async def test_a_gap_during_a_recovery_keeps_carried_objects(namespace: Namespace) -> None:
    await register(namespace, A, topics=topics("orders"))
    async with following(namespace) as replica:
        old = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        await register(namespace, B, broker="broker-b", topics=topics("billing"))
        await caught_up(namespace, replica)
        await namespace.client.call("HINCRBY", namespace.keys.meta, "version", 1)
        await until(lambda: replica.counts.gaps == 1 and replica.counts.loads == 3)
        assert set(replica.view.topics) == {"orders", "billing"}
        await unregister(namespace, "broker-b", B)
        await caught_up(namespace, replica)
        assert set(replica.view.topics) == {"orders"}


async def test_a_new_worker_carries_nothing_over(namespace: Namespace) -> None:
    await register(namespace, A)
    await lose_everything(namespace)
    await open_namespace(namespace)
    async with following(namespace) as replica:
        assert not replica.is_recovering
        assert replica.route_bytes("orders") is None


async def test_a_read_only_entry_of_the_new_history_wins(namespace: Namespace) -> None:
    await register(namespace, A, acting_master=True)
    async with following(namespace) as replica:
        old = replica.position.identity
        await lose_everything(namespace)
        await until(lambda: replica.position.identity != old)
        await register(namespace, B, 1, acting_master=True)
        await caught_up(namespace, replica)
        assert replica.view.groups["broker-a"].addresses == {0: A, 1: B}
        assert replica.view.queues_of("broker-a")["orders"].perm == PERM_READ
