"""A replica that reads the history only when a test lets it: everything since the last time is one batch."""

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
from tests.properties.whole_worker import TIMEOUT_MS, state_of_table


class GatedClient(StoreClient):
    """Delays blocking reads, which only the feed makes, until the gate is open, and then returns everything."""

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client.url, slot_key="rb:{t}:meta", timeout_ms=TIMEOUT_MS)
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

    async def catch_up(self) -> None:
        """Lets the replica read everything, and compares it with the store."""
        self._client.gate.set()
        version = int(await self.namespace.client.call("HGET", self.namespace.keys.meta, "version") or 0)
        await self.replica.wait_for(version, TIMEOUT_MS)
        self._client.gate.clear()
        assert state_of_table(self.replica.table) == visible(await state_of_store(self.namespace))
        assert self.replica.table.digest == self.replica.table.compute_digest()


@asynccontextmanager
async def lagging_replica(namespace: Namespace) -> AsyncIterator[LaggingReplica]:
    client = GatedClient(namespace.client)
    await client.open()
    await open_namespace(namespace)
    lagging = LaggingReplica(namespace, client)
    feed = asyncio.create_task(lagging.replica.run())
    try:
        await lagging.replica.wait_complete(TIMEOUT_MS)
        yield lagging
        await lagging.catch_up()
        assert lagging.replica.counts.loads == 1, "it must read changes instead of loading the table again"
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
        await client.close()


def visible(state: State) -> State:
    """Without the filters of removed instances, which the store keeps but lookups do not show."""
    shown = {
        instance_name: filters for instance_name, filters in state.filters.items() if instance_name in state.instances
    }
    return dataclasses.replace(state, filters=shown)


def _settings() -> LiveSettings:
    return LiveSettings(load({"redis_url": "redis://127.0.0.1:1"}))
