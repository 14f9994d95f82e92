"""Responses while the store is down."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from routebook.background.change_log import write_refusals
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.http_api.conftest import Worker, running, seat
from tests.support.ports import lasting_free_port
from tests.support.waiting import until

STORE_TIMEOUT_MS = 500
MAX_SECONDS = 4.0
"""The timeout of the store, and time for a busy machine."""


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    """No other server may take its port while it is stopped, or a write would reach another test's store."""
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        yield store


@pytest.fixture
async def worker_without_store(store: EmbeddedStore) -> AsyncIterator[Worker]:
    """A worker that has loaded TopicA and whose store has stopped."""
    keys = Keys("default")
    client = StoreClient(StoreUrl.parse(store.url), slot_key=keys.meta, timeout_ms=STORE_TIMEOUT_MS)
    await client.open()
    try:
        async with running(Namespace(client, keys, ScriptSet.load()), min_version_wait_ms="300") as worker:
            await worker.put_broker()
            store.stop()
            await until(lambda: worker.registry.stale_seconds > 0)
            yield worker
    finally:
        await client.close()


async def test_without_the_store_known_objects_are_returned_with_their_age(worker_without_store: Worker) -> None:
    for path in ("/v1/routes/TopicA", "/v1/topics/TopicA", "/v1/topics", "/v1/brokers/broker-a"):
        answer = await worker_without_store.http.get(path)
        assert answer.status_code == 200
        assert int(answer.headers["x-routebook-stale-seconds"]) >= 1
        assert answer.headers["x-routebook-warnings"] == "stale"


async def test_without_the_store_an_unknown_object_is_not_ready_and_never_not_found(
    worker_without_store: Worker,
) -> None:
    for path in (
        "/v1/routes/missing",
        "/v1/routes/missing?min_version=1",
        "/v1/topics/missing",
        "/v1/brokers/x",
        "/v1/kv/x",
    ):
        answer = await worker_without_store.http.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "not-ready"), path
        assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", seat(), {"address": "127.0.0.11:10911", "topics": {"TopicA": {}}}),
        ("PUT", seat("new"), {"address": "127.0.0.12:10911", "topics": {"TopicA": {}}}),
        ("DELETE", seat(), None),
        ("POST", f"{seat()}/heartbeat", None),
        ("PUT", "/v1/topics/T", {"queues": {"broker-a": {}}}),
        ("DELETE", "/v1/topics/TopicA", None),
        ("PUT", "/v1/brokers/broker-a/write-permission", {"writable": False}),
        ("PUT", "/v1/kv/ns/key", {"value": "x"}),
        ("DELETE", "/v1/kv/ns/key", None),
        ("PUT", "/v1/settings/hold_percent", {"value": 31}),
        ("POST", "/v1/expiry/release", None),
        ("GET", "/v1/expiry", None),
        ("GET", "/v1/changes", None),
    ],
)
async def test_requests_that_need_the_store_fail_soon(
    worker_without_store: Worker, method: str, path: str, body: object
) -> None:
    start = time.monotonic()
    answer = await worker_without_store.http.request(method, path, json=body)
    assert time.monotonic() - start < MAX_SECONDS
    assert (answer.status_code, answer.json()["type"]) == (503, "store-unavailable")
    assert answer.headers["retry-after"]


async def test_the_status_is_available_without_the_store(worker_without_store: Worker) -> None:
    status = (await worker_without_store.http.get("/v1/status")).json()
    assert status["stale_seconds"] > 0
    assert (status["leader"], status["expiry_held"], status["workers"]) == (None, None, [])


async def test_without_the_store_a_resumed_watch_is_reset(worker_without_store: Worker) -> None:
    headers = {"last-event-id": "1763475600000-1"}
    async with worker_without_store.http.stream("GET", "/v1/watch?topic=TopicA", headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                assert line == "event: reset"
                break


async def test_refusals_are_written_when_the_store_is_back(worker_without_store: Worker, store: EmbeddedStore) -> None:
    worker = worker_without_store
    for _ in range(3):
        refused = await worker.http.put("/v1/kv/ns/key", json={"value": "v"}, headers={"x-forwarded-for": "10.0.0.1"})
        assert refused.status_code == 401
        await write_refusals(worker.registry._namespace, worker.registry.audit)
    store.start()

    async def written() -> list[dict[str, Any]]:
        await write_refusals(worker.registry._namespace, worker.registry.audit)
        answer = await worker.http.get("/v1/changes", params={"kind": "refused"})
        return list(answer.json()["changes"]) if answer.status_code == 200 else []

    await until(written)
    (found,) = await written()
    assert (found["verb"], found["object"], found["count"]) == ("put_kv", "/v1/kv/ns/key", 3)
