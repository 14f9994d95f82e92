"""A store that dies, stalls or comes back empty during lookups over HTTP, with real processes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from routebook.store.embedded import EmbeddedStore
from tests.runtime.running import Running
from tests.support.ports import lasting_free_port
from tests.support.waiting import wait_until

BROKER = {"address": "127.0.0.9:10911", "topics": {"orders": {}, "billing": {}}, "timeout_ms": 60_000}
PATH = "/v1/clusters/east/brokers/broker-a/0"
PROMPT_SECONDS = 4.0
"""A store call times out after half a second. The rest allows for a busy machine."""


@dataclass
class Lookups:
    """What a client that looks up all the time was answered."""

    statuses: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())


@contextmanager
def looking_up(service: Running, topic: str = "orders") -> Iterator[Lookups]:
    lookups, stop = Lookups(), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=service.http, timeout=10, trust_env=False) as client:
            while not stop.is_set():
                try:
                    status = client.get(f"/v1/routes/{topic}").status_code
                except httpx.HTTPError as error:
                    lookups.failures.append(repr(error))
                else:
                    lookups.statuses[status] = lookups.statuses.get(status, 0) + 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield lookups
    finally:
        stop.set()
        thread.join()


def is_stale(service: Running) -> bool:
    return "x-routebook-stale-seconds" in service.get("/v1/routes/orders").headers


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=lasting_free_port()) as running:
        yield running


@pytest.fixture
def service(store: EmbeddedStore, tmp_path: Path) -> Iterator[Running]:
    with Running("serve", "--redis-url", store.url, "--bind-address", "127.0.0.1", folder=tmp_path) as running:
        assert running.put(PATH, BROKER).status_code == 200
        yield running


def commands_processed(store: EmbeddedStore) -> int:
    import redis  # noqa: PLC0415 needed by one test only

    with redis.Redis(port=store.port or 0) as client:
        return int(client.info("stats")["total_commands_processed"])


def test_lookups_send_the_store_no_command(store: EmbeddedStore, service: Running) -> None:
    """During a thousand lookups, the store counts fewer commands than a single one for every second lookup."""
    before = commands_processed(store)
    with httpx.Client(base_url=service.http, trust_env=False) as client:
        for _ in range(1000):
            assert client.get("/v1/routes/orders").status_code == 200
    # The worker's own tasks send some dozens a second.
    assert commands_processed(store) - before < 500


def test_a_killed_store_fails_no_lookup_and_writes_are_refused_soon(store: EmbeddedStore, service: Running) -> None:
    with looking_up(service) as lookups:
        wait_until(lambda: lookups.answered > 50, "50 answers")
        os.kill(store.process_id, signal.SIGKILL)
        began = time.monotonic()
        refused = service.put(PATH, {**BROKER, "topics": {"more": {}}})
        assert time.monotonic() - began < PROMPT_SECONDS
        assert refused.status_code == 503
        assert refused.json()["type"] == "store-unavailable"
        wait_until(lambda: is_stale(service), "stale answers")
        many = lookups.answered + 200
        wait_until(lambda: lookups.answered > many, "200 more answers")
    assert lookups.failures == []
    assert set(lookups.statuses) == {200}
    assert service.get("/v1/routes/unknown").status_code == 503
    assert httpx.get(service.admin + "/livez", trust_env=False).status_code == 200
    assert httpx.get(service.admin + "/readyz", trust_env=False).status_code == 200


def test_a_stalled_store_stalls_neither_lookups_nor_refusals(store: EmbeddedStore, service: Running) -> None:
    os.kill(store.process_id, signal.SIGSTOP)
    try:
        with looking_up(service) as lookups:
            began = time.monotonic()
            assert service.put(PATH, {**BROKER, "topics": {"more": {}}}).status_code == 503
            assert time.monotonic() - began < PROMPT_SECONDS
            wait_until(lambda: lookups.answered > 200, "200 answers")
        assert lookups.failures == []
        assert set(lookups.statuses) == {200}
    finally:
        os.kill(store.process_id, signal.SIGCONT)
    wait_until(lambda: not is_stale(service), "fresh answers")
    assert service.put(PATH, {**BROKER, "topics": {"more": {}}}).status_code == 200


def test_an_empty_store_never_yields_404_for_a_known_topic(store: EmbeddedStore, service: Running) -> None:
    service.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"}).raise_for_status()
    service.put("/v1/settings/hold_percent", {"value": "77"}).raise_for_status()
    service.put("/v1/topics/by-request", {"queues": {"broker-a": {}}}).raise_for_status()
    history = service.get("/v1/status").json()["history"]
    with looking_up(service) as lookups, looking_up(service, "by-request") as others:
        os.kill(store.process_id, signal.SIGKILL)
        store.stop()
        wait_until(lambda: is_stale(service), "stale answers")
        store.start()
        wait_until(lambda: service.get("/v1/status").json()["history"] != history, "a new history")
        assert service.put(PATH, BROKER).status_code == 200
        wait_until(lambda: not service.get("/v1/status").json()["recovering"], "the end of recovery")
        assert service.get("/v1/kv/ORDER_TOPIC_CONFIG/orders").json()["value"] == "broker-a:8"
        assert service.get("/v1/routes/by-request").status_code == 200
    assert lookups.failures + others.failures == []
    assert set(lookups.statuses) == set(others.statuses) == {200}


def test_two_workers_have_the_same_table_after_many_writes(
    store: EmbeddedStore, service: Running, tmp_path: Path
) -> None:
    with Running("serve", "--redis-url", store.url, "--bind-address", "127.0.0.1", folder=tmp_path) as other:
        for n in range(30):
            worker = service if n % 2 else other
            body = {"address": f"127.0.1.{n}:10911", "topics": {f"t{n % 7}": {}}, "timeout_ms": 60_000}
            version = worker.put(f"/v1/clusters/east/brokers/b{n % 5}/{n}", body).json()["version"]
        first, second = [worker.get("/v1/status", min_version=version).json() for worker in (service, other)]
        assert first["digest"] == second["digest"]
        assert first["version"] == second["version"] == version
        assert {worker["worker"] for worker in first["workers"]} == {first["worker"], second["worker"]}
