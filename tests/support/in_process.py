"""Whole workers in the test's own process, on a real store and without ports."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from routebook.background.leader import Leader
from routebook.background.presence import Presence
from routebook.background.restoring import Restoring
from routebook.background.self_check import SelfCheck
from routebook.model.names import Caller
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.settings.loading import load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.workers import open_namespace

CALLER = Caller("operator", "127.0.0.1:1")


@dataclass
class InProcessWorker:
    name: str
    client: StoreClient
    namespace: Namespace
    live: LiveSettings
    replica: Replica
    registry: Registry
    metrics: Metrics
    leader: Leader
    presence: Presence
    restoring: Restoring
    self_check: SelfCheck
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.append(task)
        return task

    def lead(self) -> None:
        """Takes part in the leader election, and scans for expired brokers while it leads."""
        self.spawn(self.presence.run())
        self.spawn(self.leader.run())

    def check_store(self) -> None:
        """Compares the store with the replica, periodically and when a registration finds a difference."""
        self.spawn(self.self_check.run())

    async def end(self) -> None:
        """Stops without deregistering, as a worker that was killed."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        await self.client.close()


async def start_worker(store_url: str, namespace_name: str, **settings: Any) -> InProcessWorker:
    # The test listens on loopback, as `up` does, so administrative requests need no permission.
    flags = {"bind_address": "127.0.0.1"} | {name: str(value) for name, value in settings.items()}
    live = LiveSettings(load(flags | {"redis_url": store_url, "namespace": namespace_name}, {}, None, profile="serve"))
    name = f"worker-{secrets.token_hex(3)}"
    keys = Keys(namespace_name)
    client = StoreClient(
        StoreUrl.parse(store_url), slot_key=keys.meta, timeout_ms=live.current.store_timeout_ms, connections=4
    )
    await client.open()
    namespace = Namespace(client, keys, ScriptSet.load())
    await open_namespace(namespace)
    metrics = Metrics()
    replica = Replica(namespace, live)
    registry = Registry(namespace, replica, live, worker=name, metrics=metrics)
    worker = InProcessWorker(
        name=name,
        client=client,
        namespace=namespace,
        live=live,
        replica=replica,
        registry=registry,
        metrics=metrics,
        leader=Leader(
            namespace,
            replica,
            live,
            name,
            metrics,
            sessions=registry.sessions,
            min_broker_changes=registry.min_broker_changes,
        ),
        presence=Presence(
            namespace, replica, name, {}, health=registry.store_health, on_unknown=registry.sessions.reopen
        ),
        restoring=Restoring(namespace, replica, live, name),
        self_check=SelfCheck(namespace, replica, live, name, metrics=metrics, health=registry.store_health),
    )
    registry.on_suspected_damage = worker.self_check.suspect
    worker.spawn(replica.run())
    worker.spawn(worker.registry.sessions.run())
    await replica.wait_complete(30_000)
    return worker


@asynccontextmanager
async def running_worker(store_url: str, namespace: str, **settings: Any) -> AsyncIterator[InProcessWorker]:
    worker = await start_worker(store_url, namespace, **settings)
    try:
        yield worker
    finally:
        await worker.end()
