"""The server itself goes and comes back: with its data, or without."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.replica.build import A, B
from tests.replica.following import client_at, following_at, register
from tests.support.waiting import until

BACK_WITHIN_S = 2.0
KEYS = Keys("restarts")


@pytest.fixture
def scripts() -> ScriptSet:
    return ScriptSet.load()


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(tmp_path / "data", port=0) as store:
        yield store


@pytest.fixture
def forgetting() -> Iterator[EmbeddedStore]:
    with EmbeddedStore(None, port=0) as store:
        yield store


async def restart(store: EmbeddedStore) -> None:
    await asyncio.to_thread(store.stop)
    await asyncio.to_thread(store.start)


async def test_a_server_that_kept_its_data_is_followed_again_without_a_load(
    keeping: EmbeddedStore, scripts: ScriptSet
) -> None:
    async with client_at(keeping.url, KEYS) as client, following_at(keeping.url, KEYS, scripts) as replica:
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), A), 20_000)
        known = replica.route_bytes("orders")
        await asyncio.to_thread(keeping.stop)
        await until(lambda: replica.stale_ms() > 0)
        assert replica.route_bytes("orders") == known
        assert not replica.current
        await asyncio.to_thread(keeping.start)
        await until(lambda: replica.current, timeout_s=BACK_WITHIN_S)
        assert (replica.counts.loads, replica.counts.losses, replica.version) == (1, 0, 1)
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), B, 1), 20_000)


async def test_a_server_that_comes_back_empty_takes_nothing_away(forgetting: EmbeddedStore, scripts: ScriptSet) -> None:
    async with client_at(forgetting.url, KEYS) as client, following_at(forgetting.url, KEYS, scripts) as replica:
        await replica.wait_for(await register(Namespace(client, KEYS, scripts), A), 20_000)
        known, identity = replica.route_bytes("orders"), replica.position.identity
        await restart(forgetting)
        await until(lambda: replica.position.identity != identity, timeout_s=BACK_WITHIN_S)
        assert replica.route_bytes("orders") == known
        assert replica.is_recovering
