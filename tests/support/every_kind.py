"""A short history of a namespace that contains every kind of change with every cause."""

from typing import Any

from routebook.model.broker import QueueData
from routebook.model.identity import Credentials, Identity, Role
from routebook.store.administration import (
    delete_kv,
    delete_topic,
    put_kv,
    register_topic,
    set_setting,
    set_write_permission,
)
from routebook.store.history import GapRow, append_heartbeat_gaps, write_baseline
from routebook.store.identities import delete_identity, put_identity, read_identities, restore_identities
from routebook.store.namespace import Namespace
from routebook.store.reads import list_members, read_groups, read_history_head, read_instances
from routebook.store.recovery import repair_group
from routebook.store.removal import (
    DueInstance,
    Removal,
    expire_brokers,
    hold_expiry,
    release_expiry,
    unregister_brokers,
)
from routebook.store.sessions import EndedSession, close_sessions
from routebook.store.workers import acquire_lease, open_namespace, renew_worker_lease
from tests.properties.plain_worker import PlainWorker
from tests.reference.build import A, B, C, mapping, registration, topics, version
from tests.support.scripts import CALLER, NO_BRAKE, make_due

D = "127.0.0.4:10911"
WORKER = "name-service-0.17.5f0c9a"


async def make_every_kind_of_change(namespace: Namespace) -> None:
    await open_namespace(namespace)
    _, lease = await acquire_lease(namespace, WORKER, 600_000)
    await _register_brokers(namespace)
    await _change_topics(namespace)
    await _remove_brokers(namespace, lease.whole)
    await _remove_incomplete_groups(namespace)
    await _repair_group(namespace)
    await put_kv(namespace, "ORDER_TOPIC_CONFIG", "orders", "broker-a:8", caller=CALLER)
    await delete_kv(namespace, "ORDER_TOPIC_CONFIG", "orders", caller=CALLER)
    await set_setting(namespace, "broker_timeout_ms", "60000", "60000", caller=CALLER)
    await _change_identities(namespace)
    await hold_expiry(namespace, lease.whole, ["broker-a", "broker-b"], caller=CALLER)
    await release_expiry(namespace, caller=CALLER, expire_due=True)
    await _pause_for_an_hour(namespace)
    async for _ in write_baseline(namespace, lease.whole, caller=CALLER, cause="daily"):
        pass
    rows = [GapRow("east", "broker-a", 0, 30_012, {66: 1, 67: 1}).pack()]
    await append_heartbeat_gaps(namespace, WORKER, rows, span_ms=60_000, max_bytes=1_000_000)


async def _register_brokers(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    acting_group: dict[str, Any] = {
        "acting_master": True,
        "zone": "zone-1",
        "mappings": {"orders": mapping()},
        "filters": ("f",),
    }
    await worker.register(registration(A, **acting_group))
    await worker.register(
        registration(A, **acting_group, data_version=version(1), topics=topics("orders", "bills", perm=4))
    )
    await worker.register(registration(B, 1, acting_master=True, zone="zone-1", data_version=version()))
    await worker.register(
        registration(D, 2, topics=topics("one"), acting_master=True)
    )  # refused, but its zone is stored
    many = topics(*(f"topic-{n}" for n in range(1100)))
    await worker.register(registration(C, broker="broker-b", topics=many))


async def _change_topics(namespace: Namespace) -> None:
    await register_topic(namespace, "by-request", {"broker-a": QueueData(4, 4)}, caller=CALLER)
    await register_topic(namespace, "gone-soon", {"broker-a": QueueData(4, 4)}, caller=CALLER)
    await delete_topic(namespace, "gone-soon", caller=CALLER)
    await set_write_permission(namespace, "broker-a", writable=True, caller=CALLER)
    await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    await set_write_permission(namespace, "broker-a", writable=True, caller=CALLER)


async def _change_identities(namespace: Namespace) -> None:
    for replaces in (False, True):
        await put_identity(namespace, Identity("ci", Role.OPERATOR), Credentials(), caller=CALLER, replaces=replaces)
    packed = await read_identities(namespace)
    await delete_identity(namespace, "ci", caller=CALLER)
    await restore_identities(namespace, packed, caller=CALLER)


async def _remove_brokers(namespace: Namespace, lease: str) -> None:
    worker = PlainWorker(namespace)
    ended = EndedSession(registration(A).instance_name, await _incarnation(namespace, A), stamp=1, ago_ms=0)
    ((_, lost),) = await close_sessions(namespace, WORKER, [ended])
    assert lost
    await unregister_brokers(
        namespace, [(lost.removal(), CALLER)], NO_BRAKE
    )  # the acting group loses its write permission as well
    await worker.register(
        registration(B, 0, acting_master=True, data_version=version(state=3))
    )  # moves to another seat
    await worker.register(registration(D, 0, acting_master=True, data_version=version(state=4)))  # takes the seat over
    await worker.register(registration(C, 1, acting_master=True, data_version=version(state=1)))
    await worker.register(registration(C, 0, acting_master=True, data_version=version(state=1)))  # refused: not newer
    await unregister_brokers(namespace, [(Removal("east", "broker-b", 0, C), CALLER)], NO_BRAKE)
    await worker.register(registration("127.0.0.5:10911", broker="broker-c"))
    await unregister_brokers(namespace, [(Removal("east", "broker-c", 0, cause="operator"), CALLER)], NO_BRAKE)
    await worker.register(registration("127.0.0.6:10911", broker="broker-c"))
    silent = registration("127.0.0.6:10911").instance_name
    await make_due(namespace, silent)
    due = DueInstance(silent, await _incarnation(namespace, "127.0.0.6:10911"), 1)
    await expire_brokers(namespace, lease, [due], caller=CALLER)


async def _remove_incomplete_groups(namespace: Namespace) -> None:
    """A group that never had a seat, and a broker name that a cluster lists although its group was removed."""
    worker = PlainWorker(namespace)
    await worker.register(registration(D, broker="broker-d", topics=topics("one")))  # refused
    await unregister_brokers(namespace, [(Removal("east", "broker-d", 0, D), CALLER)], NO_BRAKE)
    await worker.register(registration("127.0.0.7:10911", broker="broker-e"))
    await worker.register(registration("127.0.0.7:10911", broker="broker-e", cluster="west"))
    await unregister_brokers(namespace, [(Removal("east", "broker-e", 0, "127.0.0.7:10911"), CALLER)], NO_BRAKE)


async def _repair_group(namespace: Namespace) -> None:
    """Its cluster and its topics were deleted without a change."""
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    instances = [one for one in (await read_instances(namespace, await list_members(namespace))).values() if one]
    await namespace.client.call("UNLINK", namespace.keys.of("queues", "broker-a"), namespace.keys.of("cluster", "east"))
    head = await read_history_head(namespace)
    await repair_group(
        namespace,
        image,
        "broker-a",
        [one for one in instances if one.broker == "broker-a"],
        {topic: queue for topic, queue in image.queues.items() if queue},
        position=f"{head.history}:{head.version}",
        caller=CALLER,
    )


async def _incarnation(namespace: Namespace, address: str) -> str:
    key = namespace.keys.of("instance", registration(address).instance_name)
    return (await namespace.client.call("HGET", key, "inc")).decode()  # type: ignore[no-any-return]


async def _pause_for_an_hour(namespace: Namespace) -> None:
    await renew_worker_lease(namespace, WORKER, 30_000, "{}", caller=CALLER)
    await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", -3_600_000)
    await renew_worker_lease(namespace, WORKER, 30_000, "{}", caller=CALLER)
