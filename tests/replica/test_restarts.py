"""The store restarts, with its data or without."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.replica.build import A, B
from tests.replica.following import client_at, following_at, register
from tests.support.ports import lasting_free_port
from tests.support.waiting import until

BACK_WITHIN_S = 2.0
KEYS = Keys("restarts")


@pytest.fixture
def scripts() -> ScriptSet:
    return ScriptSet.load()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(tmp_path / "data", port=lasting_free_port()) as store:
        yield store


@pytest.fixture
def empty_store() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        yield store


async def restart(store: EmbeddedStore) -> None:
    await asyncio.to_thread(store.stop)
    await asyncio.to_thread(store.start)


async def test_a_restarted_store_with_its_data_is_followed_without_a_load(
    store: EmbeddedStore, scripts: ScriptSet
) -> None:
    async with (
        client_at(store.url, KEYS) as client,
        following_at(store.url, KEYS, scripts) as replica,
    ):
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), A), 20_000)
        route = replica.route_bytes("orders")
        await asyncio.to_thread(store.stop)
        await until(lambda: replica.stale_ms() > 0)
        assert replica.route_bytes("orders") == route
        assert not replica.current
        await asyncio.to_thread(store.start)
        await until(lambda: replica.current, timeout_s=BACK_WITHIN_S)
        assert (replica.counts.loads, replica.counts.losses, replica.version) == (1, 0, 1)
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), B, 1), 20_000)


async def test_a_restarted_empty_store_removes_no_route(empty_store: EmbeddedStore, scripts: ScriptSet) -> None:
    async with (
        client_at(empty_store.url, KEYS) as client,
        following_at(empty_store.url, KEYS, scripts) as replica,
    ):
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), A), 20_000)
        route, identity = replica.route_bytes("orders"), replica.position.identity
        await restart(empty_store)
        await until(lambda: replica.position.identity != identity, timeout_s=BACK_WITHIN_S)
        assert replica.route_bytes("orders") == route
        assert replica.is_recovering
