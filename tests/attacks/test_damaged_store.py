"""Issue 12, "Store": keys that are deleted from the store by hand, under workers and brokers that run.

After `DEL` of one group's queues its registrations stayed "unchanged" and every new worker lacked the group; after
`DEL` of `clusters` a new worker answered 17 for a known topic.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from routebook.replica.load import load
from routebook.replica.table import Table
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import changes_between
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.runtime.running import Running
from tests.support.waiting import until

NAMESPACE = "damaged"
CHECK_MS, PERIOD_S, TIMEOUT_MS = 1_000, 0.5, 10_000
WHOLE_WITHIN_S = 20.0
"""Far more than one self-check and one registration period, for a busy machine; less than two broker timeouts."""
BROKERS = {
    ("east", "broker-a", 0): ("127.0.0.21:10911", ("orders", "payments")),
    ("east", "broker-a", 1): ("127.0.0.22:10911", ("orders", "payments")),
    ("west", "broker-b", 0): ("127.0.0.23:10911", ("orders", "bills")),
}
OF_THE_TABLE = (
    "queues:broker-a", "queues:broker-b", "clusters", "cluster:east", "broker:broker-a", "broker:broker-b",
    "instance:east/127.0.0.21:10911", "deadlines", "kv", "kv:ns", "settings",
)  # fmt: skip
OF_THE_SERVICE = (
    "heartbeats", "workers", "workers:about", "leader", "leader:token", "expiry", "changes:marks", "changes", "pulse",
)  # fmt: skip


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as running:
        yield running


@pytest.fixture
async def namespace(store: EmbeddedStore) -> AsyncIterator[Namespace]:
    keys = Keys(NAMESPACE)
    client = StoreClient(StoreUrl.parse(store.url), slot_key=keys.meta, timeout_ms=5_000)
    await client.open()
    yield Namespace(client, keys, ScriptSet.load())
    await client.close()


@pytest.fixture
def workers(store: EmbeddedStore, tmp_path: Path) -> Iterator[list[Running]]:
    flags = ["--redis-url", store.url, "--namespace", NAMESPACE, "--bind-address", "127.0.0.1"]
    flags += ["--self-check-interval-ms", str(CHECK_MS), "--scan-not-active-broker-interval-ms", "500"]
    with ExitStack() as stack:
        yield [stack.enter_context(Running("serve", *flags, folder=tmp_path)) for _ in range(2)]


@asynccontextmanager
async def registering(workers: list[Running]) -> AsyncIterator[None]:
    """Brokers that register all the time, each with one of the workers."""

    async def register(client: httpx.AsyncClient, worker: Running, seat: tuple[str, str, int]) -> None:
        (cluster, name, broker_id), (address, topics) = seat, BROKERS[seat]
        body = {
            "address": address,
            "timeout_ms": TIMEOUT_MS,
            "topics": {topic: {"read_queues": 4, "write_queues": 4} for topic in topics},
            "data_version": {"state_version": 1, "timestamp": 1, "counter": 1},
        }
        while True:
            with suppress(httpx.TransportError):
                await client.put(f"{worker.http}/v1/clusters/{cluster}/brokers/{name}/{broker_id}", json=body)
            await asyncio.sleep(PERIOD_S)

    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        tasks = [
            asyncio.create_task(register(client, workers[at % 2], seat)) for at, seat in enumerate(sorted(BROKERS))
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def routes(worker: Running) -> dict[str, object]:
    return {topic: worker.get(f"/v1/routes/{topic}").json() for topic in ("orders", "payments", "bills")}


def essence(table: Table) -> tuple[object, ...]:
    """What lookups and operators see of a table."""
    return (
        {name: (group.cluster, dict(group.addresses)) for name, group in table.groups.items()},
        {name: sorted(table.queues_of(name)) for name in table.groups},
        {name: sorted(brokers) for name, brokers in table.clusters.items()},
        sorted(table.instances),
        {name: dict(values) for name, values in table.kv.items()},
        dict(table.settings),
    )


async def is_whole(namespace: Namespace, workers: list[Running], expected: tuple[object, ...]) -> bool:
    """Whether a worker that starts now has everything, and the running ones have the same table."""
    table, position = await load(namespace)
    states = [await asyncio.to_thread(lambda worker=worker: worker.get("/v1/status").json()) for worker in workers]  # type: ignore[misc]
    same = all((state["digest"], state["version"]) == (table.digest, position.version) for state in states)
    deadlines = await namespace.client.call("ZCARD", namespace.keys.table("deadlines"))
    return same and essence(table) == expected and deadlines == len(BROKERS)


async def start(namespace: Namespace, workers: list[Running]) -> tuple[object, ...]:
    workers[0].put("/v1/kv/ns/key", {"value": "text"}).raise_for_status()
    workers[0].put("/v1/settings/hold_percent", {"value": 90}).raise_for_status()

    async def is_complete() -> bool:
        table, _ = await load(namespace)
        return len(table.instances) == len(BROKERS) and bool(table.kv) and bool(table.settings)

    await until(is_complete)
    return essence((await load(namespace))[0])


async def removed_brokers(namespace: Namespace) -> list[str]:
    changes = await changes_between(namespace, 0, 10_000)
    return [str(change.fields) for change in changes if change.kind == "broker-removed"]


async def test_every_deleted_key_comes_back_and_no_broker_expires(namespace: Namespace, workers: list[Running]) -> None:
    async with registering(workers):
        expected = await start(namespace, workers)
        before = await asyncio.to_thread(routes, workers[0])
        for name in (*OF_THE_TABLE, *OF_THE_SERVICE):
            await namespace.client.call("DEL", namespace.keys.table(name))
            for worker in workers:
                assert await asyncio.to_thread(routes, worker) == before, name
            await until(lambda: is_whole(namespace, workers, expected), timeout_s=WHOLE_WITHIN_S, every_s=0.1)
            for worker in workers:
                assert await asyncio.to_thread(routes, worker) == before, name
        assert await removed_brokers(namespace) == []
        found = sum(worker.get("/v1/status").json()["self_check"]["differences"] for worker in workers)
        assert found >= len(("queues", "clusters", "broker", "kv", "settings"))


async def test_all_keys_of_the_table_deleted_at_once_come_back(namespace: Namespace, workers: list[Running]) -> None:
    async with registering(workers):
        expected = await start(namespace, workers)
        before = await asyncio.to_thread(routes, workers[0])
        await namespace.client.call("DEL", *map(namespace.keys.table, OF_THE_TABLE))
        await until(lambda: is_whole(namespace, workers, expected), timeout_s=WHOLE_WITHIN_S, every_s=0.1)
        for worker in workers:
            assert await asyncio.to_thread(routes, worker) == before
        assert await removed_brokers(namespace) == []


async def test_a_lost_identity_or_history_is_recovered(namespace: Namespace, workers: list[Running]) -> None:
    """`meta` and `identity` say which store this is: without them it counts as a store that lost its data."""
    async with registering(workers):
        expected = await start(namespace, workers)
        before = await asyncio.to_thread(routes, workers[0])
        for name in ("identity", "meta"):
            await namespace.client.call("DEL", namespace.keys.table(name))
            for _ in range(10):
                for worker in workers:
                    assert await asyncio.to_thread(routes, worker) == before, name
                await asyncio.sleep(0.1)
            await until(lambda: is_whole(namespace, workers, expected), timeout_s=WHOLE_WITHIN_S, every_s=0.1)
        assert await removed_brokers(namespace) == []
