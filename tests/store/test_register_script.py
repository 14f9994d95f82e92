"""What register_broker and touch_broker write, beyond the rules that the reference model checks."""

from dataclasses import replace

from routebook.model.broker import QueueData
from routebook.replica.load import in_steps
from routebook.store.administration import delete_topic, set_write_permission
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups, read_instances
from routebook.store.registration import (
    STAGE_FROM_TOPICS,
    QueueDifference,
    heartbeat_broker,
    register_broker,
    touch_broker,
)
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, C, mapping, registration, topics, version
from tests.support.scripts import history, kinds, newest

DIGEST = "d" * 32


async def registered(namespace: Namespace, *, base: int = 0, **changes: object) -> Status:
    """One registration whose difference is based on that revision."""
    sent = registration(**changes)  # type: ignore[arg-type]
    history_name = (await open_namespace(namespace)).history
    reply = await register_broker(
        namespace,
        sent,
        QueueDifference(new=sent.topics),
        caller=CALLER,
        timeout_ms=120_000,
        digest=DIGEST,
        base=(history_name, base),
        replaces_known=True,
        run_steps=in_steps,
    )
    return reply.status


async def test_a_new_broker_is_one_entry_with_all_its_queues(namespace: Namespace) -> None:
    await registered(namespace)
    (change,) = await history(namespace)
    assert change.kind == "broker-registered"
    assert change.version == 1
    assert change.fields["first"] is True
    assert change.fields["queues"] == [
        {"t": "orders", "r": 16, "w": 16, "p": 6, "f": 0},
        {"t": "payments", "r": 16, "w": 16, "p": 6, "f": 0},
    ]
    assert {"v", "actor", "source", "incarnation", "zone", "acting", "ha", "timeout_ms"} <= change.fields.keys()


async def test_a_repeated_registration_is_a_touch_without_a_history_entry(namespace: Namespace) -> None:
    await registered(namespace)
    reply = await touch_broker(namespace, registration(), caller=CALLER, digest=DIGEST)
    assert reply.status is Status.UNCHANGED
    assert await kinds(namespace) == ["broker-registered"]


async def test_a_touch_moves_heartbeat_and_deadline(namespace: Namespace) -> None:
    await registered(namespace)
    instance_name, table = registration().instance_name, namespace.keys.table
    await namespace.client.call("ZADD", table("heartbeats"), 5, instance_name)
    await namespace.client.call("ZADD", table("deadlines"), 5, instance_name)
    await touch_broker(namespace, registration(), caller=CALLER, digest=DIGEST)
    assert int(await namespace.client.call("ZSCORE", table("heartbeats"), instance_name)) > 5
    assert int(await namespace.client.call("ZSCORE", table("deadlines"), instance_name)) > 5


async def test_a_registration_digest_is_invalid_after_the_group_changed(namespace: Namespace) -> None:
    await registered(namespace)
    await delete_topic(namespace, "orders", caller=CALLER)
    reply = await touch_broker(namespace, registration(), caller=CALLER, digest=DIGEST)
    assert reply.status is Status.STALE


async def test_all_parts_of_a_split_registration_are_recognized_when_repeated(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    parts = [registration(topics=topics(f"t{n}")) for n in range(3)]
    full = [replace(part, full=True) for part in parts]
    for _ in range(2):
        for part in full:
            await worker.register(part)
    before = (await history(namespace))[-1].version
    results = [await worker.register(part) for part in full]
    assert [result.status for result in results] == ["unchanged"] * 3
    assert (await history(namespace))[-1].version == before


async def test_a_difference_from_an_older_revision_is_stale(namespace: Namespace) -> None:
    await registered(namespace)
    assert await registered(namespace, base=0, data_version=version(2)) is Status.STALE
    assert await kinds(namespace) == ["broker-registered"]


async def test_a_difference_from_another_history_is_stale(namespace: Namespace) -> None:
    await registered(namespace)
    await namespace.client.call("HSET", namespace.keys.meta, "history", "another")
    sent = registration(data_version=version(2))
    reply = await register_broker(
        namespace,
        sent,
        QueueDifference(),
        caller=CALLER,
        timeout_ms=1000,
        digest=DIGEST,
        base=("the-first", 1),
        replaces_known=True,
        run_steps=in_steps,
    )
    assert reply.status is Status.STALE


async def test_a_table_of_thousands_appears_in_one_step_and_in_several_entries(namespace: Namespace) -> None:
    many = {f"topic-{n:05d}": QueueData(flags=n % 3) for n in range(STAGE_FROM_TOPICS + 500)}
    assert await registered(namespace, topics=many) is Status.DONE
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert image.queues == many
    changes = await history(namespace)
    assert [change.fields["part"] for change in changes] == [0, 1, 2, 3, 4, 5, 6]
    assert {change.fields["parts"] for change in changes} == {7}
    recorded = {item["t"]: item["f"] for change in changes for item in change.fields["queues"]}
    assert recorded == {topic: queue.flags for topic, queue in many.items()}


async def test_a_staged_table_leaves_nothing_behind(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    many = {f"topic-{n:05d}": QueueData() for n in range(STAGE_FROM_TOPICS)}
    await worker.register(registration(topics=many))
    fewer = {topic: QueueData(perm=4) for topic in many}
    await worker.register(registration(topics=fewer, data_version=version(2), replace_topics=True))
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert image.queues == fewer
    assert await namespace.client.call("KEYS", namespace.keys.of("staged", "*")) == []
    assert await namespace.client.call("PTTL", namespace.keys.of("queues", "broker-a")) == -1


async def test_a_move_to_another_id_is_a_removal_then_a_registration(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(B, 1, acting_master=None))
    await worker.register(registration(B, 0))
    changes = await history(namespace)
    assert [(c.kind, c.fields.get("cause"), c.fields["id"]) for c in changes] == [
        ("broker-registered", None, 1),
        ("broker-removed", "moved", 1),
        ("broker-registered", None, 0),
    ]


async def test_the_removal_of_a_replaced_address_comes_before_its_successor(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(A, 0))
    await worker.register(registration(B, 0))
    changes = await history(namespace)
    assert [(c.kind, c.fields.get("cause"), c.fields["addr"]) for c in changes[1:]] == [
        ("broker-removed", "replaced", A),
        ("broker-registered", None, B),
    ]
    assert changes[1].fields["incarnation"] == changes[0].fields["incarnation"]


async def test_a_registration_that_is_turned_down_only_changes_the_groups_flags(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(A, 0, data_version=version(state=5)))
    result = await worker.register(registration(B, 0, zone="z2", data_version=version(state=4)))
    assert result.status == "turned-down"
    change = await newest(namespace)
    assert (change.kind, change.fields["zone"]) == ("group-changed", "z2")
    assert (await read_instances(namespace, [registration(B).instance_name])) == {registration(B).instance_name: None}


async def test_a_refused_single_topic_leaves_an_empty_group(namespace: Namespace) -> None:
    result = await PlainWorker(namespace).register(registration(topics=topics("only")))
    assert result.status == "refused"
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert image.group is not None
    assert image.group.addresses == {}
    assert await kinds(namespace) == ["group-changed"]


async def test_a_mapping_of_another_host_changes_that_group(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(B, broker="broker-b"))
    before = (await read_groups(namespace, {"broker-b": None}))["broker-b"].group
    await worker.register(registration(A, mappings={"orders": mapping(bname="broker-b")}))
    after = (await read_groups(namespace, {"broker-b": None}))["broker-b"]
    assert before is not None
    assert after.group is not None
    assert after.group.revision > before.revision
    assert after.mappings == {"orders": mapping(bname="broker-b")}


async def test_permission_of_many_topics_is_one_entry(namespace: Namespace) -> None:
    await registered(namespace)
    reply = await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    change = await newest(namespace)
    assert (reply.count, change.kind, change.fields["rule"]) == (2, "write-permission", "clear-write")
    assert change.fields["touched"] == 2


async def test_a_heartbeat_creates_nothing(namespace: Namespace) -> None:
    reply = await heartbeat_broker(namespace, "east", "broker-a", 0, caller=CALLER)
    assert reply.status is Status.UNKNOWN
    assert await namespace.client.call("ZCARD", namespace.keys.table("deadlines")) == 0


async def test_a_heartbeat_by_seat_returns_the_data_version(namespace: Namespace) -> None:
    await registered(namespace, data_version=version(7))
    reply = await heartbeat_broker(namespace, "east", "broker-a", 0, caller=CALLER)
    assert (reply.status, reply.data_version) == (Status.UNCHANGED, version(7))


async def test_state_versions_above_2_53_are_compared_exactly(namespace: Namespace) -> None:
    """2^53 and 2^53 + 1 are the same floating-point number, which is what Lua calculates with."""
    large = 1 << 53
    worker = PlainWorker(namespace)
    await worker.register(registration(A, data_version=version(state=large + 1)))
    await worker.register(registration(B, data_version=version(state=large)))
    assert (await read_groups(namespace, {"broker-a": None}))["broker-a"].group.addresses == {0: A}  # type: ignore[union-attr]
    await worker.register(registration(B, data_version=version(state=large + 2)))
    assert (await read_groups(namespace, {"broker-a": None}))["broker-a"].group.addresses == {0: B}  # type: ignore[union-attr]


async def test_ids_above_2_53_are_ordered_exactly(namespace: Namespace) -> None:
    large = 1 << 53
    worker = PlainWorker(namespace)
    await worker.register(registration(A, large + 1, acting_master=True))
    await worker.register(registration(B, large, acting_master=True, topics=topics("one", "two")))
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert "one" in image.queues


async def test_negative_state_versions_are_smaller_than_all_others(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    for state, address in ((-10, A), (-9, B), (0, C), (-9, B), (3, A), (12, B), (3, A)):
        await worker.register(registration(address, data_version=version(state=state)))
    assert (await read_groups(namespace, {"broker-a": None}))["broker-a"].group.addresses == {0: B}  # type: ignore[union-attr]
