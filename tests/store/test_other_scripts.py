"""Topics, key-values, settings, opening a namespace, and restoring after a loss of data."""

from routebook.model.broker import QueueData
from routebook.store.administration import delete_kv, delete_setting, delete_topic, put_kv, register_topic, set_setting
from routebook.store.history import changes_between, find_change, first_change, read_history_state, trim_history
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups, read_history_head, read_kv, read_settings
from routebook.store.recovery import begin_history, mark_restored, restore_kv, restore_queues, restore_settings
from routebook.store.removal import Removal, unregister_brokers
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, registration, topics
from tests.support.scripts import NO_BRAKE, history, kinds, newest


async def test_a_topic_registered_by_request_is_marked_as_such(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    await register_topic(namespace, "extra", {"broker-a": QueueData(4, 4)}, caller=CALLER)
    image = (await read_groups(namespace, {"broker-a": frozenset({"extra"})}))["broker-a"]
    assert image.queues == {"extra": QueueData(4, 4, by_request=True)}
    assert (await newest(namespace)).fields["cause"] == "register-topic"


async def test_a_new_topic_with_an_unknown_broker_is_not_put(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    reply = await register_topic(namespace, "extra", {"broker-a": QueueData(), "unknown": QueueData()}, caller=CALLER)
    assert (reply.status, reply.count) == (Status.UNKNOWN, 0)


async def test_a_known_topic_is_put_up_to_the_first_unknown_broker(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    wanted = {"broker-a": QueueData(1, 1), "unknown": QueueData()}
    reply = await register_topic(namespace, "orders", wanted, caller=CALLER)
    assert (reply.status, reply.count) == (Status.UNKNOWN, 1)


async def test_the_deletion_of_a_topic_has_one_entry_per_broker(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration())
    await worker.register(registration("127.0.0.9:1", broker="broker-b", cluster="west"))
    reply = await delete_topic(namespace, "orders", caller=CALLER, cluster="west")
    assert reply.count == 1
    assert (await newest(namespace)).fields["broker"] == "broker-b"
    reply = await delete_topic(namespace, "orders", caller=CALLER)
    assert reply.count == 1
    assert (await newest(namespace)).fields["queues"] == [{"t": "orders", "x": 1}]


async def test_deleting_an_absent_topic_appends_nothing(namespace: Namespace) -> None:
    assert (await delete_topic(namespace, "orders", caller=CALLER)).status is Status.UNCHANGED
    assert await kinds(namespace) == []


async def test_a_deletion_during_recovery_is_recorded_for_carried_entries(namespace: Namespace) -> None:
    reply = await delete_topic(namespace, "orders", caller=CALLER, carried_by={"broker-a": "east"})
    assert reply.status is Status.DONE
    assert (await newest(namespace)).fields["broker"] == "broker-a"


async def test_the_history_shows_a_hash_of_a_value_and_not_the_value(namespace: Namespace) -> None:
    await put_kv(namespace, "ns", "key", "secret", caller=CALLER)
    change = await newest(namespace)
    assert "secret" not in str(change.fields)
    assert len(change.fields["sha256"]) == 64


async def test_a_key_value_namespace_remains_when_it_is_empty(namespace: Namespace) -> None:
    await put_kv(namespace, "ns", "key", "value", caller=CALLER)
    assert (await delete_kv(namespace, "ns", "key", caller=CALLER)).status is Status.DONE
    assert (await delete_kv(namespace, "ns", "key", caller=CALLER)).status is Status.UNKNOWN
    assert await namespace.client.call("SISMEMBER", namespace.keys.table("kv"), "ns") == 1


async def test_the_history_has_a_setting_in_its_shown_form(namespace: Namespace) -> None:
    await set_setting(namespace, "some_key", "hidden", "***", caller=CALLER)
    assert await read_settings(namespace) == {"some_key": "hidden"}
    assert (await newest(namespace)).fields["value"] == "***"


async def test_a_deleted_setting_leaves_its_value_in_the_history(namespace: Namespace) -> None:
    await set_setting(namespace, "some_key", "7", "7", caller=CALLER)
    assert (await delete_setting(namespace, "some_key", caller=CALLER)).status is Status.DONE
    assert await read_settings(namespace) == {}
    fields = (await newest(namespace)).fields
    assert (fields["kind"], fields["key"], fields["value"], fields["before"]) == (
        "settings-changed",
        "some_key",
        None,
        "7",
    )
    assert (await delete_setting(namespace, "some_key", caller=CALLER)).status is Status.UNKNOWN
    # Workers may still show what the store has lost: then the deletion is recorded for them.
    assert (await delete_setting(namespace, "some_key", caller=CALLER, carried=True)).status is Status.DONE


async def test_a_deleted_secret_setting_is_masked_in_the_history(namespace: Namespace) -> None:
    await set_setting(namespace, "some_key", "hidden", "***", caller=CALLER)
    await delete_setting(namespace, "some_key", caller=CALLER, shown="***")
    assert "hidden" not in str((await newest(namespace)).fields)


async def test_a_store_gets_one_identity_and_one_history(namespace: Namespace) -> None:
    first, second = await open_namespace(namespace), await open_namespace(namespace)
    assert first == second
    assert first.identity
    assert (await read_history_head(namespace)).history == first.history


async def test_a_history_that_lost_changes_is_renamed_once(namespace: Namespace) -> None:
    lost = (await open_namespace(namespace)).history
    renamed = await begin_history(namespace, history=lost)
    assert renamed != lost
    assert await begin_history(namespace, history=lost) == renamed


async def test_values_are_restored_after_a_second_loss_too(namespace: Namespace) -> None:
    lost = (await open_namespace(namespace)).history
    await mark_restored(namespace)
    await begin_history(namespace, history=lost)
    assert (await restore_kv(namespace, "ns", {"key": "old"}, caller=CALLER)).count == 1


async def test_only_absent_values_are_restored_and_only_until_one_worker_has_finished(namespace: Namespace) -> None:
    await put_kv(namespace, "ns", "kept", "new", caller=CALLER)
    assert (await restore_kv(namespace, "ns", {"kept": "old", "lost": "old"}, caller=CALLER)).count == 1
    assert (await restore_settings(namespace, {"s": ("1", "1")}, caller=CALLER)).count == 1
    await mark_restored(namespace)
    assert (await restore_kv(namespace, "ns", {"late": "old"}, caller=CALLER)).count == 0
    assert await read_kv(namespace, "ns") == {"kept": "new", "lost": "old"}


async def test_topics_by_request_are_restored_after_their_group_registered(namespace: Namespace) -> None:
    lost = {"extra": QueueData(by_request=True), "orders": QueueData(1, 1, by_request=True)}
    assert (await restore_queues(namespace, "broker-a", lost, revision=1, caller=CALLER)).status is Status.STALE
    await PlainWorker(namespace).register(registration())
    assert (await restore_queues(namespace, "broker-a", lost, revision=1, caller=CALLER)).count == 1


async def test_topics_that_were_deleted_since_are_not_restored(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    known = (await read_groups(namespace, {"broker-a": None}))["broker-a"].group
    assert known is not None
    await delete_topic(namespace, "extra", caller=CALLER, carried_by={"broker-a": "east"})
    lost = {"extra": QueueData(by_request=True)}
    reply = await restore_queues(namespace, "broker-a", lost, revision=known.revision, caller=CALLER)
    assert reply.status is Status.STALE


async def test_the_removal_of_a_group_may_change_all_its_topics(namespace: Namespace) -> None:
    """A group that takes the name afterwards may have other topics."""
    worker = PlainWorker(namespace)
    await worker.register(registration())
    await unregister_brokers(namespace, [(Removal("east", "broker-a", 0), CALLER)], NO_BRAKE)
    assert (await newest(namespace)).topics is None


async def test_changes_are_found_by_version_after_trimming_too(namespace: Namespace) -> None:
    for n in range(30):
        await put_kv(namespace, "ns", f"k{n}", "v", caller=CALLER)
    assert [change.version for change in await changes_between(namespace, 10, 5)] == [11, 12, 13, 14, 15]
    assert [change.version for change in await changes_between(namespace, 28, 5)] == [29, 30]
    assert await changes_between(namespace, 30, 5) == []
    await namespace.client.call("XTRIM", namespace.keys.changes, "MAXLEN", 5)
    assert [change.version for change in await changes_between(namespace, 0, 2)] == [26, 27]
    first = await first_change(namespace)
    assert first is not None
    assert await find_change(namespace, *first)
    assert not await find_change(namespace, first[0], 3)


async def test_versions_continue_after_all_entries_were_trimmed(namespace: Namespace) -> None:
    await put_kv(namespace, "ns", "a", "v", caller=CALLER)
    await namespace.client.call("XTRIM", namespace.keys.changes, "MAXLEN", 0)
    assert await trim_history(namespace, await read_history_state(namespace), 10) == 0
    await put_kv(namespace, "ns", "b", "v", caller=CALLER)
    assert [change.version for change in await history(namespace)] == [2]


async def test_unusual_names_are_kept_in_the_history(namespace: Namespace) -> None:
    odd = '%RETRY%grüppe "x"\\/日本'
    await PlainWorker(namespace).register(registration(A, broker=odd, topics=topics(odd, "orders")))
    change = await newest(namespace)
    assert change.broker == odd
    assert change.topics == frozenset({odd, "orders"})
    assert odd in (await read_groups(namespace, {odd: None}))[odd].queues
