"""Alarms about a store that changes while a worker runs: they begin, are shown everywhere, and end by themselves."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from routebook.cli.main import run
from routebook.store.checks import StoreState, find_alarms
from routebook.store.embedded import EmbeddedStore
from tests.runtime.running import Running
from tests.support.topologies import ask
from tests.support.waiting import wait_until

GOOD = StoreState("master", "noeviction", 1 << 30, 1 << 20, disk_trouble=False)


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as running:
        yield running


@pytest.fixture
def service(store: EmbeddedStore, tmp_path: Path) -> Iterator[Running]:
    flags = ("--redis-url", f"redis://127.0.0.1:{store.port}", "--bind-address", "127.0.0.1")
    with Running("serve", *flags, "--store-check-interval-ms", "1000", folder=tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("state", "alarms"),
    [
        (GOOD, set()),
        (replace(GOOD, eviction_policy="volatile-lru"), {"eviction"}),
        (replace(GOOD, used_memory_bytes=967 << 20), {"memory"}),
        (replace(GOOD, max_memory_bytes=0, used_memory_bytes=1 << 40), set()),
        (replace(GOOD, role="slave"), {"role"}),
        (replace(GOOD, disk_trouble=True), {"disk"}),
        (StoreState("", "", 0, 0, disk_trouble=False), set()),
        (StoreState("slave", "allkeys-lfu", 10, 10, disk_trouble=True), {"eviction", "memory", "role", "disk"}),
    ],
)
def test_what_is_an_alarm(state: StoreState, alarms: set[str]) -> None:
    found = find_alarms(state)
    assert found.keys() == alarms
    assert all(one.level == "error" and one.advice for one in found.values())


def alarms_of(service: Running) -> set[str]:
    return set(service.get("/v1/status").json()["store_alarms"])


def metric(service: Running, alarm: str) -> str:
    start = f'routebook_store_alarm{{alarm="{alarm}"}} '
    lines = service.get_admin("/metrics").text.splitlines()
    return next(line.removeprefix(start) for line in lines if line.startswith(start))


def test_a_changed_eviction_policy_is_an_alarm_until_it_is_put_right(
    store: EmbeddedStore, service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    port = store.port or 0
    assert alarms_of(service) == set()
    assert metric(service, "eviction") == "0.0"
    ask(port, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    wait_until(lambda: alarms_of(service) == {"eviction"}, "the alarm")
    wait_until(lambda: metric(service, "eviction") == "1.0", "the metric")
    assert "Store alarm (eviction)" in service.log
    assert run(["doctor", "--json", "--url", service.http]) == 1
    subjects = {one["subject"]: one for one in json.loads(capsys.readouterr().out)}
    assert "allkeys-lru" in subjects["store eviction"]["message"]
    service.register()  # the service goes on
    ask(port, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    wait_until(lambda: alarms_of(service) == set(), "the end of the alarm")
    assert metric(service, "eviction") == "0.0"
    assert "The store alarm (eviction) has ended" in service.log


def test_memory_that_is_nearly_full_is_an_alarm_before_writes_are_refused(
    store: EmbeddedStore, service: Running
) -> None:
    port = store.port or 0
    used = int(ask(port, "INFO", "memory")["used_memory"])
    ask(port, "CONFIG", "SET", "maxmemory", used + used // 20)
    wait_until(lambda: alarms_of(service) == {"memory"}, "the alarm")
    ask(port, "CONFIG", "SET", "maxmemory", used * 20)
    wait_until(lambda: alarms_of(service) == set(), "the end of the alarm")


def test_a_server_that_became_a_replica_is_an_alarm(store: EmbeddedStore, service: Running) -> None:
    """A worker with redis:// has no other server to use."""
    port = store.port or 0
    with EmbeddedStore(None, port=0) as other:
        ask(port, "REPLICAOF", "127.0.0.1", other.port or 0)
        wait_until(lambda: alarms_of(service) == {"role"}, "the alarm")
        ask(port, "REPLICAOF", "NO", "ONE")
        wait_until(lambda: alarms_of(service) == set(), "the end of the alarm")
