"""`routebook doctor --acl`: a worker does everything under the printed rule, and needs every command of it."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from routebook.errors import StoreError
from routebook.model.broker import QueueData
from routebook.store.administration import import_kv
from routebook.store.checks import acl_commands, acl_rules, commands_of_scripts, diagnose, needed_commands, probes
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import (
    changes_between,
    find_change,
    read_baseline_state,
    read_changes,
    read_history_state,
    request_baseline,
    trim_history,
)
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_groups, read_presences, read_service_state
from routebook.store.recovery import begin_history, mark_restored, restore_kv, restore_queues, restore_settings
from routebook.store.registration import STAGE_FROM_TOPICS, heartbeat_broker
from routebook.store.removal import Brake, scan_deadlines
from routebook.store.sessions import close_sessions, count_sessions
from routebook.store.workers import acquire_lease, open_namespace, remove_worker
from tests.properties.plain_worker import PlainWorker
from tests.reference.build import A, registration, topics
from tests.runtime.running import Running
from tests.support.every_kind import make_every_kind_of_change
from tests.support.in_process import CALLER, running_worker
from tests.support.registering import register
from tests.support.topologies import ask
from tests.support.waiting import until

NAMESPACE = "guarded"
USER = "worker"


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as running:
        yield running


def url_of(store: EmbeddedStore) -> str:
    return f"redis://{USER}:secret@127.0.0.1:{store.port}/3"


def rules(store: EmbeddedStore) -> list[str]:
    return acl_rules(ScriptSet.load(), StoreUrl.parse(url_of(store)), NAMESPACE)


def give(store: EmbeddedStore, *words: str) -> None:
    ask(store.port or 0, "ACL", "SETUSER", USER, "reset", ">secret", *words)


def refusals(store: EmbeddedStore) -> list[str]:
    """Commands that were refused for the lack of a permission, since the last call."""
    log = ask(store.port or 0, "ACL", "LOG")
    ask(store.port or 0, "ACL", "LOG", "RESET")
    entries: list[dict[str, Any]] = [
        entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True)) for entry in log
    ]
    return [str(entry["object"]).lower() for entry in entries]


def used_commands(store: EmbeddedStore) -> set[str]:
    stats = ask(store.port or 0, "INFO", "commandstats")
    return {name.removeprefix("cmdstat_") for name, counts in stats.items() if counts["calls"] > 0}


async def do_everything(store: EmbeddedStore) -> None:
    """What a worker ever sends, apart from the checks at its start, in a second."""
    ask(store.port or 0, "SCRIPT", "FLUSH")
    ask(store.port or 0, "FLUSHALL")
    client = StoreClient(StoreUrl.parse(url_of(store)), slot_key=Keys(NAMESPACE).meta, timeout_ms=20_000)
    namespace = Namespace(client, Keys(NAMESPACE), ScriptSet.load())
    try:
        await client.open()
        await diagnose_and_probe_nothing(client)
        await read_groups(namespace, {"broker-a": None})
        await open_namespace(namespace)
        await import_kv(namespace, [("kv", "key", "value")], file="f" * 64, start=0, is_last=True, caller=CALLER)
        await make_every_kind_of_change(namespace)
        await use_rare_ways(namespace)
        state = await read_history_state(namespace)
        await read_service_state(namespace)
        await read_presences(namespace, {"east/127.0.0.8:1": "incarnation"})
        await read_baseline_state(namespace)
        await request_baseline(namespace, "operator")
        await find_change(namespace, 1, 1)
        await changes_between(namespace, 0, 10)
        await trim_history(namespace, state, state.newest)
    finally:
        await client.close()


async def diagnose_and_probe_nothing(client: StoreClient) -> None:
    """The facts about the store that a start reads. Its probes use every command, so they would prove nothing here."""
    await client.call("INFO")
    await client.call("CONFIG", "GET", "min-replicas-to-write")
    await client.call("TIME")


async def use_rare_ways(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    many = topics(*(f"topic-{number}" for number in range(STAGE_FROM_TOPICS + 1)))
    await worker.register(registration("127.0.0.9:1", broker="large", topics=many))
    await heartbeat_broker(namespace, "east", "large", 0, caller=CALLER)
    await worker.register(registration(A, broker="small", filters=("one",)))
    await worker.register(registration(A, broker="small", filters=("one",)))
    revision = (await read_groups(namespace, {"small": None}))["small"].group.revision  # type: ignore[union-attr]
    await restore_queues(namespace, "small", {"lost": QueueData()}, revision=revision, caller=CALLER)
    await restore_kv(namespace, "kv", {"lost": "value"}, caller=CALLER)
    await restore_settings(namespace, {"broker_timeout_ms": ("60000", "60000")}, caller=CALLER)
    await mark_restored(namespace)
    await begin_history(namespace, history=(await open_namespace(namespace)).history)
    await count_sessions(namespace, 0)
    await remove_worker(namespace, "worker", caller=CALLER)
    _, lease = await acquire_lease(namespace, "worker", 10_000)
    await scan_deadlines(namespace, lease.whole, caller=CALLER, limit=10, brake=Brake(30, 5, 1))
    await close_sessions(namespace, "worker", [])
    await read_changes(namespace, (0, 0), count=1)


async def test_a_worker_does_everything_under_the_rule(store: EmbeddedStore) -> None:
    give(store, *rules(store))
    refusals(store)
    await do_everything(store)
    ask(store.port or 0, "FLUSHALL")
    settings = {"scan_not_active_broker_interval_ms": 100, "lease_ms": 1500}
    async with running_worker(url_of(store), NAMESPACE, **settings) as one:
        one.lead()
        errors = [finding for finding in await diagnose(one.client, NAMESPACE) if finding.level == "error"]
        assert errors == []
        await register(one.registry, registration("127.0.0.8:1", broker="live", timeout_ms=1_000))
        await one.registry.status()
        assert await one.registry.presences([one.registry.broker("live")])
        await until(lambda: "live" not in one.registry.brokers(), timeout_s=20)
    assert refusals(store) == []


def test_a_service_starts_works_and_stops_under_the_rule(store: EmbeddedStore, tmp_path: Path) -> None:
    give(store, *rules(store))
    ask(store.port or 0, "FLUSHALL")
    refusals(store)
    arguments = ("--redis-url", url_of(store), "--namespace", NAMESPACE, "--bind-address", "127.0.0.1")
    with Running("serve", *arguments, folder=tmp_path) as service:
        service.register("broker-a", "orders")
        service.register("broker-a", "orders")
        service.put("/v1/kv/ns/key", {"value": "text"}).raise_for_status()
        service.put("/v1/settings/hold_percent", {"value": 90}).raise_for_status()
        document = service.get("/v1/snapshot").raise_for_status()
        assert service.get("/v1/brokers").json()["brokers"][0]["members"][0]["health"] == "ok"
        service.delete("/v1/clusters/demo/brokers/broker-a/0").raise_for_status()
        assert service.get("/v1/status").json()["leader"]
        assert document.content
        assert service.stop() == 0
    assert refusals(store) == []


async def test_every_command_of_the_rule_is_used(store: EmbeddedStore) -> None:
    give(store, *rules(store))
    ask(store.port or 0, "CONFIG", "RESETSTAT")
    await do_everything(store)
    granted = {word[1:] for word in rules(store) if word.startswith("+")}
    assert granted - used_commands(store) == set()


async def test_the_rule_needs_each_of_its_commands(store: EmbeddedStore) -> None:
    """Each command is taken away in turn, and is refused to the worker then."""
    granted = [word for word in rules(store) if word.startswith("+")]
    missed = []
    for command in granted:
        give(store, *(word for word in rules(store) if word != command))
        refusals(store)
        with suppress(StoreError):
            await do_everything(store)
        refused = {name.partition("|")[0] for name in refusals(store)}
        if command[1:].partition("|")[0] not in refused:
            missed.append(command)
    assert missed == []


async def test_the_rule_opens_no_other_namespace_and_no_channel(store: EmbeddedStore) -> None:
    give(store, *rules(store))
    user = ask(store.port or 0, "ACL", "GETUSER", USER)
    fields = user if isinstance(user, dict) else dict(zip(user[::2], user[1::2], strict=True))
    assert fields["channels"] in ("", [])
    assert NAMESPACE in str(fields["keys"])
    with pytest.raises(Exception, match=r"permission"):
        ask_as_user(store, "GET", "rb:{other}:meta")
    with pytest.raises(Exception, match=r"permission"):
        ask_as_user(store, "FLUSHALL")


def ask_as_user(store: EmbeddedStore, *words: str) -> Any:
    import redis  # noqa: PLC0415

    with redis.Redis(port=store.port or 0, username=USER, password="secret", protocol=2) as server:
        return server.execute_command(*words)


def test_the_rule_has_every_command_that_a_start_probes() -> None:
    url = StoreUrl.parse("redis://127.0.0.1:1")
    needed = {command.partition("|")[0] for command in needed_commands(ScriptSet.load(), url)}
    assert {words[0].lower() for words in probes(NAMESPACE)} <= needed


def test_every_command_in_the_scripts_is_a_literal() -> None:
    """Otherwise it would not be found. `call_in_slices` passes on the command that it was given."""
    scripts = ScriptSet.load()
    for name in scripts.names:
        calls = re.findall(r"redis\.p?call\((?!\s*')[^)]*", scripts[name].source)
        assert set(calls) <= {"redis.call(command, key, unpack(list, first, math.min(first + SLICE - 1, to"}, name
    assert {"hset", "hdel", "xadd", "time"} <= commands_of_scripts(scripts)


@pytest.mark.parametrize(
    ("url", "lines"),
    [
        ("redis://one:pw@h:1", ["ACL SETUSER one on resetkeys ~rb:{ns}:* resetchannels nocommands +client|setname"]),
        ("redis://h:1", ["ACL SETUSER routebook on resetkeys"]),
        (
            "sentinel://h:1/master?sentinel_username=asker&sentinel_password=pw",
            [
                "ACL SETUSER routebook",
                "ACL SETUSER asker on resetchannels nocommands +sentinel|get-master-addr-by-name",
            ],
        ),
    ],
)
def test_the_printed_lines(url: str, lines: list[str]) -> None:
    printed = acl_commands(ScriptSet.load(), StoreUrl.parse(url), "ns")
    assert len(printed) == len(lines)
    for line, start in zip(printed, lines, strict=True):
        assert line.startswith(start)
        assert "pw" not in line


def test_a_cluster_and_another_database_need_more() -> None:
    scripts = ScriptSet.load()
    assert "cluster|slots" in needed_commands(scripts, StoreUrl.parse("cluster://h:1"))
    assert "select" in needed_commands(scripts, StoreUrl.parse("redis://h:1/2"))
    assert not {"cluster|slots", "select"} & set(needed_commands(scripts, StoreUrl.parse("redis://h:1")))
