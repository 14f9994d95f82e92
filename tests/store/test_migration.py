"""A namespace of an earlier version is migrated when it is opened; everything else in the store stays as it is."""

import asyncio
import json

import pytest

from routebook.errors import StoreUnsuitableError
from routebook.replica.load import load
from routebook.store.history import Change, parse_change, read_baseline_state, read_changes
from routebook.store.keys import Keys
from routebook.store.namespace import SCHEMA, Namespace, ScriptSet, Status, status_of
from routebook.store.reads import read_history_head, read_settings
from routebook.store.removal import scan_deadlines
from routebook.store.workers import acquire_lease, open_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import registration
from tests.support.scripts import NO_BRAKE

HOUR_MS = 3_600_000
FORMER_META = {"deaf_ms": str(HOUR_MS), "baseline_wanted": "1795034092344 operator"}
FORMER_EXPIRY = {"stood_at": "1795034000000", "stood_from_ms": "1795034001000"}
FORMER_SETTINGS = {"network_ill_percent": "35", "network_ill_minimum": "7"}
"""Names of layout 1, with values."""


async def every_key(namespace: Namespace) -> dict[bytes, bytes]:
    """Each key with the name of the namespace in its own, with its value in a form that can be compared."""
    client = namespace.client
    keys = sorted(await client.call("KEYS", f"*{namespace.keys.namespace}*"))
    return dict(zip(keys, await client.pipeline([("DUMP", key) for key in keys]), strict=True))


async def hash_of(namespace: Namespace, name: str) -> dict[str, str]:
    flat = await namespace.client.call("HGETALL", namespace.keys.table(name))
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


async def write_layout_1(namespace: Namespace) -> None:
    """A namespace with one broker, as an earlier version has left it."""
    await PlainWorker(namespace).register(registration())
    for table, fields in (("meta", FORMER_META), ("expiry", FORMER_EXPIRY), ("settings", FORMER_SETTINGS)):
        await namespace.client.call("HSET", namespace.keys.table(table), *(w for pair in fields.items() for w in pair))
    await namespace.client.call("HDEL", namespace.keys.meta, "paused_ms")
    await namespace.client.call("HSET", namespace.keys.meta, "schema", 1)


async def test_opening_renames_the_former_fields_and_keeps_their_values(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    before = await hash_of(namespace, "meta")
    head = await open_namespace(namespace)
    assert head.schema == SCHEMA
    meta = await hash_of(namespace, "meta")
    assert meta == {name: value for name, value in before.items() if name not in FORMER_META} | {
        "schema": str(SCHEMA),
        "paused_ms": str(HOUR_MS),
        "baseline_requested": "1795034092344 operator",
    }
    assert await hash_of(namespace, "expiry") == {"paused_at": "1795034000000", "paused_from_ms": "1795034001000"}
    assert await read_settings(namespace) == {"mass_disconnect_percent": "35", "mass_disconnect_minimum": "7"}
    assert (await read_baseline_state(namespace)).requested == "operator"


async def test_no_other_key_of_the_store_is_touched(namespace: Namespace) -> None:
    client = namespace.client
    other = Namespace(client, Keys(f"{namespace.keys.namespace}-other"), namespace.scripts)
    await write_layout_1(namespace)
    await write_layout_1(other)
    foreign = f"foreign-{namespace.keys.namespace}"
    await client.call("HSET", foreign, "deaf_ms", 5)
    before = await every_key(namespace)
    await open_namespace(namespace)
    after = await every_key(namespace)
    assert before.keys() == after.keys()
    assert {key.decode() for key in before if before[key] != after[key]} == {
        namespace.keys.table(name) for name in ("meta", "expiry", "settings")
    }


async def test_opening_again_changes_nothing(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    await open_namespace(namespace)
    before = await every_key(namespace)
    await open_namespace(namespace)
    assert status_of(await namespace.run("migrate_namespace", SCHEMA)) is Status.UNCHANGED
    assert await every_key(namespace) == before


async def test_a_namespace_that_is_not_open_is_not_migrated(namespace: Namespace) -> None:
    assert status_of(await namespace.run("migrate_namespace", SCHEMA)) is Status.UNCHANGED
    assert await hash_of(namespace, "meta") == {}


async def test_a_new_namespace_has_the_current_layout(namespace: Namespace) -> None:
    await open_namespace(namespace)
    assert (await read_history_head(namespace)).schema == SCHEMA


async def test_a_migration_that_was_cut_off_is_finished_by_the_next_start(namespace: Namespace) -> None:
    """The worker died between opening and migrating: the namespace still says layout 1."""
    await write_layout_1(namespace)
    await namespace.run("open_namespace", "identity", "history", SCHEMA)
    assert (await read_history_head(namespace)).schema == 1
    assert (await open_namespace(namespace)).schema == SCHEMA
    assert (await hash_of(namespace, "meta"))["paused_ms"] == str(HOUR_MS)


async def test_a_load_after_an_older_backup_was_restored_migrates_it(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    await namespace.run("open_namespace", "identity", "history", SCHEMA)
    table, _ = await load(namespace)
    assert table.settings == {"mass_disconnect_percent": "35", "mass_disconnect_minimum": "7"}
    assert (await read_history_head(namespace)).schema == SCHEMA


async def test_a_value_under_the_new_name_is_kept(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    await namespace.client.call("HSET", namespace.keys.table("settings"), "mass_disconnect_percent", "50")
    await open_namespace(namespace)
    assert await read_settings(namespace) == {"mass_disconnect_percent": "50", "mass_disconnect_minimum": "7"}


async def test_a_namespace_on_which_older_workers_run_is_not_migrated(namespace: Namespace) -> None:
    """They would not find the time of earlier pauses under its new name, and expire brokers too early."""
    await write_layout_1(namespace)
    await namespace.client.call("HSET", namespace.keys.meta, "deaf_ms", 0)
    now_ms = int((await namespace.client.call("TIME"))[0]) * 1000
    workers, about = namespace.keys.table("workers"), namespace.keys.table("workers:about")
    await namespace.client.call(
        "ZADD", workers, now_ms + 10_000, "older", now_ms + 10_000, "new", now_ms - 1000, "dead"
    )
    await namespace.client.call("HSET", about, "older", '{"version":"0.1.0"}', "new", '{"layout":2}')
    before = await every_key(namespace)
    with pytest.raises(StoreUnsuitableError, match=r"Workers of an older version are running .*\(older\)"):
        await open_namespace(namespace)
    assert await every_key(namespace) == before
    await namespace.client.call("ZREM", workers, "older")
    assert (await open_namespace(namespace)).schema == SCHEMA


async def test_workers_that_start_together_migrate_once(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    statuses: list[Status | None] = []

    def note(script: str, seconds: float, status: Status | None, error: object) -> None:
        if script == "migrate_namespace":
            statuses.append(status)

    workers = [Namespace(namespace.client, namespace.keys, ScriptSet.load(), on_run=note) for _ in range(5)]
    heads = await asyncio.gather(*(open_namespace(worker) for worker in workers))
    assert len(set(heads)) == 1
    assert sorted(status for status in statuses if status is not None)[:2] == [Status.DONE, Status.UNCHANGED]
    assert statuses.count(Status.DONE) == 1
    assert (await hash_of(namespace, "meta"))["paused_ms"] == str(HOUR_MS)


async def test_the_deadline_clock_keeps_the_pauses_of_the_former_layout(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    await open_namespace(namespace)
    _, lease = await acquire_lease(namespace, "worker-1", 10_000)
    found = await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=10, brake=NO_BRAKE)
    seconds, _ = await namespace.client.call("TIME")
    assert -2000 < int(seconds) * 1000 - HOUR_MS - found.clock < 2000


async def test_an_earlier_version_refuses_a_migrated_namespace(namespace: Namespace) -> None:
    """It runs its own open_namespace, with its own layout."""
    await open_namespace(namespace)
    reply = await namespace.run("open_namespace", "identity", "history", SCHEMA - 1)
    assert (status_of(reply), int(reply[5])) == (Status.REFUSED, SCHEMA)


async def test_a_newer_layout_is_refused_with_advice(namespace: Namespace) -> None:
    await namespace.client.call("HSET", namespace.keys.meta, "schema", 99)
    with pytest.raises(StoreUnsuitableError, match=f"layout 99; this Routebook supports up to {SCHEMA}") as raised:
        await open_namespace(namespace)
    assert "Start a Routebook" in raised.value.advice


def parsed(**fields: object) -> Change:
    return parse_change(b"1-1", json.dumps({"v": 1, **fields}).encode())


def test_entries_of_earlier_versions_are_read_with_the_current_names() -> None:
    paused = parsed(kind="blind", from_ms=1, to_ms=2)
    assert (paused.kind, paused.fields["kind"]) == ("expiry-paused", "expiry-paused")
    changed = parsed(kind="group-changed", members=["east/127.0.0.1:1"])
    assert changed.instance_names == ("east/127.0.0.1:1",)
    assert changed.fields["instances"] == ["east/127.0.0.1:1"]
    assert "members" not in changed.fields


async def test_a_migrated_history_can_be_read_from_its_beginning(namespace: Namespace) -> None:
    await write_layout_1(namespace)
    await namespace.client.call(
        "XADD", namespace.keys.changes, "9999999999999-2", "d", '{"v":1,"kind":"blind","from_ms":1,"to_ms":2}'
    )
    await open_namespace(namespace)
    kinds = [change.kind for change in await read_changes(namespace, (0, 0), count=10)]
    assert kinds == ["broker-registered", "expiry-paused"]
