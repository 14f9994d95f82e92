"""Groups of thousands of topics: every change of them is prepared out of sight and becomes visible in one step."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from routebook.model.broker import QueueData
from routebook.replica.load import in_steps
from routebook.store import reads
from routebook.store.administration import put_kv, register_topic, set_write_permission
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_groups
from routebook.store.registration import STAGE_FROM_TOPICS, QueueDifference, register_broker
from routebook.store.removal import Removal, expire_brokers, scan_deadlines, unregister_brokers
from routebook.store.staging import STAGING_ATTEMPTS, TOPICS_PER_STAGE, stage_permissions
from routebook.store.workers import acquire_lease, open_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import A, B, registration, version
from tests.support.scripts import NO_BRAKE, history, kinds, make_due, newest

MANY = {f"topic-{n:05d}": QueueData(8, 8, 6 if n % 2 else 4, n % 3) for n in range(8500)}
"""More topics than one script changes or one page has."""
READ_ONLY = {topic: QueueData(8, 8, 4, queue.flags) for topic, queue in MANY.items()}


async def register_many(namespace: Namespace) -> None:
    """An acting group with a master and a slave."""
    worker = PlainWorker(namespace)
    await worker.register(registration(A, 0, topics=MANY, acting_master=True))
    await worker.register(registration(B, 1, topics={}, acting_master=True))


async def queues(namespace: Namespace) -> dict[str, QueueData | None]:
    return dict((await read_groups(namespace, {"broker-a": None}))["broker-a"].queues)


async def staged_keys(namespace: Namespace) -> list[bytes]:
    return list(await namespace.client.call("KEYS", namespace.keys.table("staged*")))


def interrupted(namespace: Namespace, script: str, action: Callable[[], Awaitable[Any]], times: int = 1) -> Namespace:
    """The same namespace; after each of the first runs of that script something else happens."""
    remaining = [times]

    async def act(name: str) -> None:
        if name == script and remaining[0]:
            remaining[0] -= 1
            await action()

    class Interrupted(Namespace):
        async def run(self, script: str, *args: str | int, epoch: int | None = None) -> list[Any]:
            reply = await namespace.run(script, *args, epoch=epoch)
            await act(script)
            return reply

        async def run_all(self, script: str, arguments: list[list[str]]) -> list[Any]:
            replies = await namespace.run_all(script, arguments)
            await act(script)
            return replies

    return Interrupted(namespace.client, namespace.keys, namespace.scripts)


def extra_topic(namespace: Namespace, name: str = "extra") -> Callable[[], Awaitable[Any]]:
    return lambda: register_topic(namespace, name, {"broker-a": QueueData(1, 1)}, caller=CALLER)


# -- registrations


async def test_a_table_that_loses_all_its_topics_leaves_nothing(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(topics=MANY))
    await worker.register(registration(topics={}, data_version=version(2), replace_topics=True))
    assert await queues(namespace) == {}
    assert await staged_keys(namespace) == []
    removed = {item["t"] for change in await history(namespace, after=6) for item in change.fields["queues"]}
    assert removed == set(MANY)


async def test_a_staged_table_keeps_the_topics_that_do_not_change(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(topics=MANY))
    changed = dict(list(READ_ONLY.items())[: STAGE_FROM_TOPICS + 1])
    removed = [topic for topic in MANY if topic not in changed][:100]
    kept = {topic: queue for topic, queue in MANY.items() if topic not in removed}
    wanted = {**kept, **changed}
    await worker.register(registration(topics=wanted, data_version=version(2), replace_topics=True))
    assert await queues(namespace) == wanted


async def test_a_registration_whose_staged_table_expired_is_staged_again(namespace: Namespace) -> None:
    async def expire() -> None:
        await namespace.client.call("DEL", *await staged_keys(namespace))

    worker = PlainWorker(interrupted(namespace, "stage_queues", expire))
    await worker.register(registration(topics=MANY))
    assert await queues(namespace) == MANY
    assert set(await kinds(namespace)) == {"broker-registered"}


async def test_a_table_that_is_replaced_as_a_whole_is_not_copied(namespace: Namespace) -> None:
    runs: list[str] = []
    counting = replace(namespace, on_run=lambda script, *_: runs.append(script))
    base = ((await open_namespace(counting)).history, 0)
    for state, difference in enumerate(
        [
            QueueDifference(new=MANY, unchanged=0),
            QueueDifference(differing=READ_ONLY, unchanged=0),
            QueueDifference(dropped=list(MANY), unchanged=0),
        ]
    ):
        reply = await register_broker(
            counting,
            registration(topics=MANY, data_version=version(state)),
            difference,
            caller=CALLER,
            timeout_ms=120_000,
            digest="d" * 32,
            base=base,
            replaces_known=True,
            run_steps=in_steps,
        )
        assert reply.status is Status.DONE
        assert await queues(namespace) == {**difference.new, **difference.differing}
        base = (base[0], reply.version)
    assert "stage_queues" in runs
    assert "copy_queues" not in runs


async def test_a_staged_table_without_replacements_keeps_the_known_values(namespace: Namespace) -> None:
    """The data version is unchanged, so the differing topics keep the values that the group has."""
    await PlainWorker(namespace).register(registration(topics=MANY))
    extra = {f"extra-{n}": QueueData() for n in range(STAGE_FROM_TOPICS)}
    reply = await register_broker(
        namespace,
        registration(topics={**READ_ONLY, **extra}),
        QueueDifference(new=extra, differing=READ_ONLY, unchanged=0),
        caller=CALLER,
        timeout_ms=120_000,
        digest="d" * 32,
        base=((await open_namespace(namespace)).history, (await newest(namespace)).version),
        replaces_known=False,
        run_steps=in_steps,
    )
    assert reply.status is Status.DONE
    assert await queues(namespace) == {**MANY, **extra}


# -- write permission


async def test_the_permission_of_many_topics_changes_in_one_step(namespace: Namespace) -> None:
    await register_many(namespace)
    reply = await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    assert (reply.status, reply.count) == (Status.DONE, len(MANY))
    change = await newest(namespace)
    writable = sum(queue.perm == 6 for queue in MANY.values())
    assert (change.kind, change.fields["rule"], change.fields["touched"]) == (
        "write-permission",
        "clear-write",
        writable,
    )
    assert change.fields["before"] == [6]
    assert await queues(namespace) == READ_ONLY
    assert await staged_keys(namespace) == []
    assert await namespace.client.call("PTTL", namespace.keys.of("queues", "broker-a")) == -1


async def test_a_permission_that_many_topics_have_already_changes_nothing(namespace: Namespace) -> None:
    await register_many(namespace)
    await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    before = await kinds(namespace)
    reply = await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    assert (reply.status, reply.count) == (Status.UNCHANGED, len(MANY))
    assert await kinds(namespace) == before


async def test_a_topic_that_comes_meanwhile_gets_the_permission_too(namespace: Namespace) -> None:
    await register_many(namespace)
    busy = interrupted(namespace, "copy_queues", extra_topic(namespace))
    assert (await set_write_permission(busy, "broker-a", writable=False, caller=CALLER)).count == len(MANY) + 1
    assert await queues(namespace) == {**READ_ONLY, "extra": QueueData(1, 1, 4, by_request=True)}


async def test_a_group_that_keeps_changing_gets_the_permission_in_one_script(namespace: Namespace) -> None:
    await register_many(namespace)
    pages = -(-len(MANY) // TOPICS_PER_STAGE) + 1
    count = 0

    async def add() -> None:
        nonlocal count
        count += 1
        await extra_topic(namespace, f"extra-{count}")()

    busy = interrupted(namespace, "copy_queues", add, times=STAGING_ATTEMPTS * pages * 2)
    reply = await set_write_permission(busy, "broker-a", writable=False, caller=CALLER)
    assert (reply.status, reply.count) == (Status.DONE, len(MANY) + count)
    assert count >= STAGING_ATTEMPTS
    assert {queue.perm for queue in (await queues(namespace)).values() if queue} == {4}


async def test_permissions_are_copied_once_each_though_pages_may_repeat_them(namespace: Namespace) -> None:
    await register_many(namespace)
    _, _, entries, changed, former = (await stage_permissions(namespace, "broker-a", "clear-write")).split()
    assert (int(entries), int(changed)) == (len(MANY), sum(queue.perm == 6 for queue in MANY.values()))
    assert former == "6"


# -- the master of an acting group leaves


async def test_the_departure_of_a_master_takes_the_write_permission_in_the_same_step(namespace: Namespace) -> None:
    await register_many(namespace)
    before = len(await history(namespace))
    removals = [Removal("east", "broker-a", 0, A), Removal("east", "unknown", 0, "127.0.0.9:1")]
    reply = await unregister_brokers(namespace, [(removal, CALLER) for removal in removals], NO_BRAKE)
    assert reply.statuses == (Status.DONE, Status.UNKNOWN)
    assert [change.kind for change in (await history(namespace))[before:]] == ["broker-removed", "write-permission"]
    assert await queues(namespace) == READ_ONLY
    assert await staged_keys(namespace) == []


async def test_a_group_that_changes_while_its_master_leaves_is_staged_again(namespace: Namespace) -> None:
    await register_many(namespace)
    busy = interrupted(namespace, "copy_queues", extra_topic(namespace))
    reply = await unregister_brokers(busy, [(Removal("east", "broker-a", 0, A), CALLER)], NO_BRAKE)
    assert reply.statuses == (Status.DONE,)
    assert {queue.perm for queue in (await queues(namespace)).values() if queue} == {4}
    assert (await newest(namespace)).fields["cause"] == "master-lost"


async def test_the_expiry_of_a_master_takes_the_write_permission_in_the_same_step(namespace: Namespace) -> None:
    await register_many(namespace)
    before = len(await history(namespace))
    await make_due(namespace, registration(A).instance_name)
    _, lease = await acquire_lease(namespace, "worker-1", 30_000)
    due = (await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=10, brake=NO_BRAKE)).listed
    reply = await expire_brokers(namespace, lease.whole, due, caller=CALLER)
    assert (reply.status, reply.handled, reply.removed) == (Status.DONE, 1, (registration(A).instance_name,))
    assert [change.kind for change in (await history(namespace))[before:]] == ["broker-removed", "write-permission"]
    assert await queues(namespace) == READ_ONLY


# -- a replica reads


async def test_a_large_group_is_read_in_pages(namespace: Namespace) -> None:
    await register_many(namespace)
    runs: list[str] = []
    counting = replace(namespace, on_run=lambda script, *_: runs.append(script))
    image = (await read_groups(counting, {"broker-a": None}))["broker-a"]
    assert (image.queues, image.all_queues, image.clusters) == (MANY, True, frozenset({"east"}))
    assert len(runs) > 1


async def test_a_group_that_changes_between_its_pages_is_read_again(namespace: Namespace) -> None:
    await register_many(namespace)
    busy = interrupted(namespace, "read_group", extra_topic(namespace))
    image = (await read_groups(busy, {"broker-a": None}))["broker-a"]
    assert image.queues == {**MANY, "extra": QueueData(1, 1, by_request=True)}
    assert image.group
    assert image.group.revision == (await newest(namespace)).version


async def test_a_change_elsewhere_does_not_disturb_the_pages(namespace: Namespace) -> None:
    await register_many(namespace)
    busy = interrupted(namespace, "read_group", lambda: put_kv(namespace, "ns", "k", "v", caller=CALLER))
    image = (await read_groups(busy, {"broker-a": None}))["broker-a"]
    assert image.queues == MANY


async def test_a_group_that_keeps_changing_is_read_by_one_script(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_many(namespace)
    monkeypatch.setattr(reads, "PAGING_ATTEMPTS", 2)
    count = 0

    async def add() -> None:
        nonlocal count
        count += 1
        await extra_topic(namespace, f"extra-{count}")()

    busy = interrupted(namespace, "read_group", add, times=1000)
    image = (await read_groups(busy, {"broker-a": None}))["broker-a"]
    assert len(image.queues) == len(MANY) + count - 1
    assert image.group
    assert image.group.revision == (await newest(namespace)).version - 1


async def test_a_group_that_is_removed_between_its_pages_is_gone(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration(topics=MANY))
    busy = interrupted(
        namespace,
        "read_group",
        lambda: unregister_brokers(namespace, [(Removal("east", "broker-a", 0, A), CALLER)], NO_BRAKE),
    )
    image = (await read_groups(busy, {"broker-a": None}))["broker-a"]
    assert (image.group, image.queues) == (None, {})
