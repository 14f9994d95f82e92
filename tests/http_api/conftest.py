"""A worker's HTTP port for tests, with a real registry, store and socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from routebook.http_api.app import HttpApp, create_app
from routebook.http_api.serving import AcceptorOptions
from routebook.listeners.peers import PeerLimits, Peers
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.settings import LiveSettings, load
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.http_api.ports import served

CLUSTER = "DefaultCluster"


@dataclass(frozen=True)
class Worker:
    """The parts that tests inspect. They send requests through `http`."""

    port: int
    http: httpx.AsyncClient
    registry: Registry
    metrics: Metrics
    app: HttpApp

    async def put_broker(self, name: str = "broker-a", broker_id: int = 0, **body: Any) -> httpx.Response:
        """Registers a broker. The body is valid by default; a test sets only the fields that matter to it."""
        fields = {"address": f"127.0.0.{11 + broker_id}:10911", "topics": {"TopicA": {}}, **body}
        answer = await self.http.put(seat(name, broker_id), json=fields)
        assert answer.status_code == 200, answer.text
        return answer


def seat(name: str = "broker-a", broker_id: int = 0, cluster: str = CLUSTER) -> str:
    return f"/v1/clusters/{cluster}/brokers/{name}/{broker_id}"


@asynccontextmanager
async def running(namespace: Namespace, **settings: str) -> AsyncIterator[Worker]:
    """A worker without background tasks, so nothing expires during a test."""
    live = LiveSettings(load(settings))
    metrics = Metrics()
    await open_namespace(namespace)
    replica = Replica(namespace, live)
    feed = asyncio.create_task(replica.run())
    try:
        await replica.wait_complete(30_000)
        registry = Registry(namespace, replica, live, worker="test-worker")
        app = create_app(registry, live, metrics, Peers(PeerLimits.of(live.current)))
        acceptor_options = AcceptorOptions(proxy_from=live.current.proxy_networks, metrics=metrics)
        async with (
            served(app, request_timeout_ms=live.current.request_timeout_ms, acceptor_options=acceptor_options) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as http,
        ):
            yield Worker(port, http, registry, metrics, app)
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)


@pytest.fixture
async def worker(namespace: Namespace) -> AsyncIterator[Worker]:
    async with running(namespace, min_version_wait_ms="300") as one:
        yield one
