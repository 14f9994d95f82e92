"""A replica that is let on only now and then: what happened in between reaches it as one batch."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.settings.loading import load
from routebook.store.connection.client import StoreClient, Word
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.properties.states import State, state_of_store
from tests.properties.whole_worker import PATIENCE_MS, state_of_table


class GatedClient(StoreClient):
    """Waiting reads, which only the feed makes, answer while the gate is open, with all there is by then."""

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client.url, slot_key="rb:{t}:meta", timeout_ms=PATIENCE_MS)
        self.gate = asyncio.Event()

    async def call_blocking(self, *words: Word, block_ms: int) -> Any:
        while True:
            await self.gate.wait()
            reply = await super().call_blocking(*words, block_ms=block_ms)
            if self.gate.is_set():
                return reply


class LaggingReplica:
    def __init__(self, namespace: Namespace, client: GatedClient) -> None:
        self.namespace = namespace
        self._client = client
        self.replica = Replica(dataclasses.replace(namespace, client=client), _settings())

    async def follow(self) -> None:
        """Lets it on, and compares it with the store once it has seen everything."""
        self._client.gate.set()
        version = int(await self.namespace.client.call("HGET", self.namespace.keys.meta, "version") or 0)
        await self.replica.wait_for(version, PATIENCE_MS)
        self._client.gate.clear()
        assert state_of_table(self.replica.table) == looked_up(await state_of_store(self.namespace))
        assert self.replica.table.digest == self.replica.table.compute_digest()


@asynccontextmanager
async def lagging_replica(namespace: Namespace) -> AsyncIterator[LaggingReplica]:
    client = GatedClient(namespace.client)
    await client.open()
    await open_namespace(namespace)
    lagging = LaggingReplica(namespace, client)
    feed = asyncio.create_task(lagging.replica.run())
    try:
        await lagging.replica.wait_complete(PATIENCE_MS)
        yield lagging
        await lagging.follow()
        assert lagging.replica.counts.loads == 1, "it shall learn from changes, not from loading anew"
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
        await client.close()


def looked_up(state: State) -> State:
    """Filters of an address that is not alive remain in the store, and nobody looks them up."""
    filters = {
        instance_name: found for instance_name, found in state.filters.items() if instance_name in state.instances
    }
    return dataclasses.replace(state, filters=filters)


def _settings() -> LiveSettings:
    return LiveSettings(load({"redis_url": "redis://127.0.0.1:1"}))
