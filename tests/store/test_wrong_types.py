"""A script that fails has written nothing, because it cannot be rolled back.

Planted are keys of a wrong type, values that are no numbers, and a store without memory.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from routebook.errors import StoreError, StoreUnsuitableError
from routebook.model.broker import QueueData
from routebook.model.identity import Credentials, Identity, Role
from routebook.store.administration import (
    delete_kv,
    delete_setting,
    delete_topic,
    import_kv,
    put_kv,
    register_topic,
    set_setting,
    set_write_permission,
)
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import GapRow, append_heartbeat_gaps, request_baseline, write_baseline
from routebook.store.identities import delete_identity, put_identity, restore_identities
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_groups, read_history_head, read_instances
from routebook.store.recovery import begin_history, mark_restored, repair_group, restore_kv, restore_settings
from routebook.store.registration import STAGE_FROM_TOPICS, heartbeat_broker, touch_broker
from routebook.store.removal import (
    DueInstance,
    Removal,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
    unregister_brokers,
)
from routebook.store.sessions import (
    EndedSession,
    LostConnection,
    OpenedSession,
    SessionMark,
    adopt_lost_connections,
    close_sessions,
    open_sessions,
    resolve_lost_connections,
)
from routebook.store.workers import (
    Lease,
    acquire_lease,
    open_namespace,
    release_lease,
    remove_worker,
    renew_lease,
    renew_worker_lease,
)
from tests.properties.plain_worker import PlainWorker
from tests.reference.build import A, B, C, mapping, registration, topics, version
from tests.support.scripts import CALLER, NO_BRAKE, make_due

NAMESPACE = "typed"
WORKER, OTHER = "worker-1", "worker-2"
FIRST = registration(A, mappings={"orders": mapping()}, filters=("one",), acting_master=True)
SECOND = registration(B, 1, acting_master=True)
THIRD = registration(C, broker="broker-b", cluster="west", topics=topics("bills", "refunds"))
DIGEST = "d" * 32

Operation = Callable[[Namespace, Lease], Awaitable[Any]]


async def _register(namespace: Namespace, **changes: Any) -> None:
    await PlainWorker(namespace).register(registration(**changes))


async def _baseline(namespace: Namespace, lease: Lease) -> None:
    async for _ in write_baseline(namespace, lease.whole, caller=CALLER, cause="daily"):
        pass


async def _repair(namespace: Namespace) -> None:
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    instances = [one for one in (await read_instances(namespace, [FIRST.instance_name])).values() if one]
    head = await read_history_head(namespace)
    known = {topic: queue for topic, queue in image.queues.items() if queue}
    position = f"{head.history}:{head.version}"
    await repair_group(namespace, image, "broker-a", instances, known, position=position, caller=CALLER)


async def _incarnation(namespace: Namespace, name: str) -> str:
    return str((await namespace.client.call("HGET", namespace.keys.of("instance", name), "inc") or b"").decode())


async def _expire(namespace: Namespace, lease: Lease) -> None:
    names = [one.instance_name for one in (FIRST, THIRD)]
    due = [DueInstance(name, await _incarnation(namespace, name), 1) for name in names]
    await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=10, brake=NO_BRAKE)
    await expire_brokers(namespace, lease.whole, due, caller=CALLER)


async def _touch(namespace: Namespace) -> None:
    mark = SessionMark(WORKER, 7)
    await touch_broker(namespace, THIRD, caller=CALLER, digest=await _digest(namespace), session=mark)


async def _digest(namespace: Namespace) -> str:
    key = namespace.keys.of("instance", THIRD.instance_name)
    return str((await namespace.client.call("HGET", key, "digests") or b"").decode()[-32:])


async def _close(namespace: Namespace) -> None:
    incarnation = await _incarnation(namespace, THIRD.instance_name)
    await close_sessions(namespace, WORKER, [EndedSession(THIRD.instance_name, incarnation, 9, 10)])


async def _resolve(namespace: Namespace) -> None:
    incarnation = await _incarnation(namespace, THIRD.instance_name)
    await resolve_lost_connections(namespace, [LostConnection(THIRD.instance_name, "broker-b", 0, incarnation, 1)])


async def _unregister(namespace: Namespace, one: Any, cause: Any) -> None:
    removal = Removal(one.cluster, one.broker, one.broker_id, one.address, cause=cause)
    if cause == "connection-lost":
        incarnation = await _incarnation(namespace, one.instance_name)
        ended = EndedSession(one.instance_name, incarnation, 9, 10)
        ((_, lost),) = await close_sessions(namespace, WORKER, [ended])
        removal = lost.removal() if lost else removal
    await unregister_brokers(namespace, [(removal, CALLER)], NO_BRAKE)


MANY = topics(*(f"topic-{number}" for number in range(STAGE_FROM_TOPICS + 1)))
OPERATIONS: dict[str, Operation] = {
    "open_namespace": lambda n, _: open_namespace(n),
    "register a new broker": lambda n, _: _register(n, address="127.0.0.9:1", broker="new", cluster="north"),
    "register other topics": lambda n, _: _register(n, address=C, broker="broker-b", cluster="west"),
    "register a mapping": lambda n, _: _register(
        n, mappings={"x": mapping("x", "broker-b")}, data_version=version(9), filters=("two",)
    ),
    "register in another seat": lambda n, _: _register(n, address=B, broker_id=0, data_version=version(state=3)),
    "be turned down": lambda n, _: _register(n, address=B, broker_id=0, data_version=version(state=-1)),
    "touch": lambda n, _: _touch(n),
    "heartbeat": lambda n, _: heartbeat_broker(n, "west", "broker-b", 0, caller=CALLER),
    "unregister the master": lambda n, _: _unregister(n, FIRST, "unregistered"),
    "unregister the last broker": lambda n, _: _unregister(n, THIRD, "operator"),
    "lose a connection": lambda n, _: _unregister(n, THIRD, "connection-lost"),
    "expire": _expire,
    "hold": lambda n, lease: hold_expiry(n, lease.whole, ["broker-a"], caller=CALLER),
    "release": lambda n, _: release_expiry(n, caller=CALLER, expire_due=True),
    "register_topic": lambda n, _: register_topic(
        n, "extra", {"broker-a": QueueData(), "broker-b": QueueData()}, caller=CALLER
    ),
    "delete_topic": lambda n, _: delete_topic(n, "orders", caller=CALLER),
    "write permission": lambda n, _: set_write_permission(n, "broker-a", writable=False, caller=CALLER),
    "put_kv": lambda n, _: put_kv(n, "ns", "new", "value", caller=CALLER),
    "delete_kv": lambda n, _: delete_kv(n, "ns", "key", caller=CALLER),
    "import_kv": lambda n, _: import_kv(n, [("ns", "k", "v")], file="f" * 64, start=0, is_last=True, caller=CALLER),
    "set_setting": lambda n, _: set_setting(n, "hold_percent", "91", "91", caller=CALLER),
    "delete_setting": lambda n, _: delete_setting(n, "hold_percent", caller=CALLER),
    "put_identity": lambda n, _: put_identity(
        n, Identity("new", Role.READ), Credentials(token_sha256="1" * 64), caller=CALLER
    ),
    "delete_identity": lambda n, _: delete_identity(n, "ops", caller=CALLER),
    "restore_kv": lambda n, _: restore_kv(n, "ns", {"lost": "v"}, caller=CALLER),
    "restore_settings": lambda n, _: restore_settings(n, {"warm_up_ms": ("1", "1")}, caller=CALLER),
    "restore_identities": lambda n, _: restore_identities(n, {"lost": '{"role":"read"}'}, caller=CALLER),
    "mark_restored": lambda n, _: mark_restored(n),
    "begin_history": lambda n, _: begin_history(n, history="other"),
    "repair": lambda n, _: _repair(n),
    "acquire": lambda n, _: acquire_lease(n, OTHER, 1000),
    "renew": lambda n, lease: renew_lease(n, lease, 1000),
    "release lease": release_lease,
    "renew worker": lambda n, _: renew_worker_lease(n, WORKER, 1000, "{}", caller=CALLER),
    "remove worker": lambda n, _: remove_worker(n, WORKER, caller=CALLER),
    "open_sessions": lambda n, _: open_sessions(n, OTHER, [OpenedSession(THIRD.instance_name, "x", 1)], caller=CALLER),
    "close_sessions": lambda n, _: _close(n),
    "adopt": lambda n, lease: adopt_lost_connections(n, lease.whole, OTHER, caller=CALLER),
    "resolve": lambda n, _: _resolve(n),
    "baseline": _baseline,
    "request_baseline": lambda n, _: request_baseline(n, "operator"),
    "gaps": lambda n, _: append_heartbeat_gaps(
        n, WORKER, [GapRow("east", "broker-a", 0, 1, {1: 1}).pack()], span_ms=1, max_bytes=1000
    ),
    "a large registration": lambda n, _: _register(n, address=C, broker="broker-b", cluster="west", topics=MANY),
}
SLOW_PARTS = {"a large registration"}
PLANTED = (
    "meta", "clusters", "cluster:east", "cluster:west", "cluster:north", "broker:broker-a", "broker:broker-b",
    "broker:new", "queues:broker-a", "queues:broker-b", "queues:new", "mapped", "mapping:broker-a", "mapping:broker-b",
    f"instance:east/{A}", f"instance:west/{C}", f"instance:east/{B}", "instance:north/127.0.0.9:1", "filters",
    "heartbeats", "deadlines", f"sessions:{WORKER}", f"sessions:{OTHER}", "lost", "ended", "workers", "workers:about",
    "kv", "kv:ns", "settings", "identities", "changes", "changes:marks", "pulse", "identity", "leader", "leader:token",
    "new-instances", "removals", "held", "expiry",
)  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as running:
        yield running


@pytest.fixture(scope="module")
def admin(store: EmbeddedStore) -> Iterator["redis.Redis"]:
    with redis.Redis(port=store.port or 0, protocol=2) as connection:
        yield connection


def dump(admin: "redis.Redis") -> dict[bytes, Any]:
    """Everything but staged tables, which no reader uses and which expire."""
    found: list[bytes] = admin.execute_command("KEYS", "*")  # type: ignore[no-untyped-call]
    keys = sorted(key for key in found if b":staged" not in key)
    return dict(zip(keys, (admin.dump(key) for key in keys), strict=True))


def put_back(admin: "redis.Redis", state: dict[bytes, Any]) -> None:
    admin.flushall()
    for key, value in state.items():
        admin.restore(key, 0, value)


async def prepare(namespace: Namespace) -> Lease:
    await open_namespace(namespace)
    worker = PlainWorker(namespace)
    for one in (FIRST, SECOND, THIRD):
        await worker.register(one)
    await renew_worker_lease(namespace, WORKER, 600_000, "{}", caller=CALLER)
    await renew_worker_lease(namespace, "dead", 1, "{}", caller=CALLER)
    await _touch(namespace)
    await put_kv(namespace, "ns", "key", "value", caller=CALLER)
    await set_setting(namespace, "hold_percent", "90", "90", caller=CALLER)
    await put_identity(namespace, Identity("ops", Role.READ), Credentials(token_sha256="0" * 64), caller=CALLER)
    await make_due(namespace, FIRST.instance_name, THIRD.instance_name)
    _, lease = await acquire_lease(namespace, WORKER, 600_000)
    return lease


def plant(admin: "redis.Redis", key: str) -> None:
    """A key of another type than the one that it has to have."""
    is_text = key.endswith((":identity", ":leader", ":leader:token"))
    admin.delete(key)
    if is_text:
        admin.rpush(key, "planted")
    else:
        admin.set(key, "planted")


async def open_client(store: EmbeddedStore) -> Namespace:
    keys = Keys(NAMESPACE)
    client = StoreClient(StoreUrl.parse(store.url), slot_key=keys.meta, timeout_ms=20_000)
    await client.open()
    return Namespace(client, keys, ScriptSet.load())


async def failures_after_a_write(
    admin: "redis.Redis", namespace: Namespace, operation: Operation, lease: Lease
) -> bool:
    """Whether one script of the operation failed after it had written."""
    before = dump(admin)
    failed_after_write = False

    def watch(script: str, seconds: float, status: object, error: StoreError | None) -> None:
        nonlocal before, failed_after_write
        after = dump(admin)
        if error is not None and after != before:
            failed_after_write = True
        before = after

    watched = Namespace(namespace.client, namespace.keys, namespace.scripts, on_run=watch)
    with suppress(StoreError, ValueError, AttributeError, KeyError, IndexError, TypeError):
        await operation(watched, lease)
    return failed_after_write


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_script_that_meets_a_wrong_type_has_written_nothing(
    name: str, store: EmbeddedStore, admin: "redis.Redis"
) -> None:
    admin.flushall()
    namespace = await open_client(store)
    lease = await prepare(namespace)
    state = dump(admin)
    broken = []
    for planted in PLANTED:
        put_back(admin, state)
        plant(admin, namespace.keys.table(planted))
        if await failures_after_a_write(admin, namespace, OPERATIONS[name], lease):
            broken.append(planted)
    await namespace.client.close()
    assert broken == []


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("meta", "version", "abc"), ("meta", "ms", "abc"), ("meta", "bytes", "1e400"), ("meta", "paused_ms", "9" * 30),
        ("meta", "alive_ms", ""), ("meta", "began_at", "x"), ("expiry", "due", "9223372036854775807"),
        ("expiry", "instances", "abc"), ("expiry", "due", "-9223372036854775808"),
    ],
)  # fmt: skip
async def test_a_script_that_meets_a_value_that_is_no_number_has_written_nothing(
    key: str, field: str, value: str, store: EmbeddedStore, admin: "redis.Redis"
) -> None:
    admin.flushall()
    namespace = await open_client(store)
    lease = await prepare(namespace)
    state = dump(admin)
    broken = []
    for name, operation in OPERATIONS.items():
        put_back(admin, state)
        admin.hset(namespace.keys.table(key), field, value)
        if name not in SLOW_PARTS and await failures_after_a_write(admin, namespace, operation, lease):
            broken.append(name)
    await namespace.client.close()
    assert broken == []


async def test_a_script_that_meets_full_memory_has_written_nothing(store: EmbeddedStore, admin: "redis.Redis") -> None:
    admin.flushall()
    namespace = await open_client(store)
    lease = await prepare(namespace)
    state = dump(admin)
    broken = []
    for name, operation in OPERATIONS.items():
        put_back(admin, state)
        admin.config_set("maxmemory", 1)
        if await failures_after_a_write(admin, namespace, operation, lease):
            broken.append(name)
        admin.config_set("maxmemory", 0)
    await namespace.client.close()
    assert broken == []


async def test_the_error_names_the_key_and_both_types(store: EmbeddedStore, admin: "redis.Redis") -> None:
    admin.flushall()
    namespace = await open_client(store)
    await prepare(namespace)
    plant(admin, namespace.keys.table("filters"))
    with pytest.raises(StoreUnsuitableError) as found:
        await PlainWorker(namespace).register(registration(B, broker="new"))
    assert "rb:{typed}:filters is a string, not a hash" in found.value.message
    assert "RENAME" in found.value.advice
    await namespace.client.close()


async def test_a_history_that_lost_its_head_goes_on(store: EmbeddedStore, admin: "redis.Redis") -> None:
    """`meta` was deleted and the clock set back: the next id would not be greater than the last one."""
    admin.flushall()
    namespace = await open_client(store)
    await prepare(namespace)
    admin.xadd(namespace.keys.changes, {"d": "{}"}, id="9999999999999-7")
    admin.delete(namespace.keys.meta)
    outcome = await put_kv(namespace, "ns", "new", "value", caller=CALLER)
    assert outcome.version == 1
    newest = await namespace.client.call("XREVRANGE", namespace.keys.changes, "+", "-", "COUNT", 1)
    assert newest[0][0] == b"10000000000000-1"
    await namespace.client.close()
