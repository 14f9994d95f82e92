"""A store that loses all scripts between any two calls gives the same answers."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from routebook.store.connection.client import StoreClient, Word
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.namespace import Namespace
from tests.properties import operations as op
from tests.properties.test_histories import check_registry, check_scripts, quick


class ForgetfulClient(StoreClient):
    """Deletes all scripts from the store before each call."""

    async def call(self, *words: Word, timeout_ms: int | None = None, epoch: int | None = None) -> Any:
        if words[0] == "EVALSHA":
            await super().call("SCRIPT", "FLUSH")
        return await super().call(*words, timeout_ms=timeout_ms, epoch=epoch)

    async def pipeline(self, commands: Sequence[Sequence[Word]], timeout_ms: int | None = None) -> list[Any]:
        await super().call("SCRIPT", "FLUSH")
        return await super().pipeline(commands, timeout_ms)


@pytest.fixture(scope="module")
def own_store() -> Iterator[EmbeddedStore]:
    """A store of its own, since other tests use the scripts of the run's store."""
    with EmbeddedStore(None) as store:
        yield store


async def forgetful_client(store: EmbeddedStore) -> StoreClient:
    client = ForgetfulClient(StoreUrl.parse(store.url), slot_key="rb:{t}:meta", timeout_ms=5000)
    await client.open()
    return client


@given(op.histories)
@settings(quick, max_examples=25)
async def test_lost_scripts_are_loaded_again(own_store: EmbeddedStore, history: list[op.Operation]) -> None:
    client = await forgetful_client(own_store)
    try:
        await check_scripts(client, history)
        await check_registry(client, history)
    finally:
        await client.close()


async def test_the_store_has_really_lost_the_scripts(own_store: EmbeddedStore, namespace: Namespace) -> None:
    client = await forgetful_client(own_store)
    try:
        sha1 = namespace.scripts["open_namespace"].sha1
        await client.call("SCRIPT", "LOAD", namespace.scripts["open_namespace"].source)
        assert await client.call("SCRIPT", "EXISTS", sha1) == [1]
        with pytest.raises(Exception, match="NOSCRIPT"):
            await client.call("EVALSHA", sha1, 1, namespace.keys.meta)
    finally:
        await client.close()
