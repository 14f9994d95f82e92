"""What does a route lookup over HTTP cost before FastAPI, through FastAPI, and in an application that does nothing?

One process without sockets: each application is called as a server calls it, in turn, so that other load affects all
alike. Then the same over one keep-alive connection each, which includes the server's own cost.

    .venv/bin/python -m benchmarks.http_lookup [--seconds 10]

Result, 2026-11-20, two shared cores, Python 3.11.7, uvloop:

    a route of 8 brokers, 1727 bytes
    called without a server
      bare            0.7 us     1.0 x bare
      lookup          6.4 us     8.7 x bare
      fastapi       142.0 us   194.3 x bare
    over a keep-alive connection (client and server in one process)
      bare           39.8 us     1.0 x bare
      lookup         51.1 us     1.3 x bare
      fastapi       246.3 us     6.2 x bare

So behind a socket `LookupEndpoint` costs a quarter more than an empty answer, and FastAPI five times that.
"""

import argparse
import asyncio
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.http_api.app import create_app
from routebook.http_api.serving import http_server
from routebook.model.broker import QueueData, Registration, Seat
from routebook.model.names import Caller
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.settings import LiveSettings, load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.workers import open_namespace

BROKERS = 8
CALLS_A_TURN = 200
WAYS = {"bare": b"", "lookup": b"", "fastapi": b"min_version=1"}

Lookup = Callable[[], Awaitable[None]]


@asynccontextmanager
async def filled_registry(store_url: str) -> AsyncIterator[tuple[Registry, LiveSettings, Metrics]]:
    keys = Keys("default")
    client = StoreClient(StoreUrl.parse(store_url), slot_key=keys.meta, timeout_ms=5000)
    await client.open()
    namespace, live, metrics = Namespace(client, keys, ScriptSet.load()), LiveSettings(load()), Metrics()
    await open_namespace(namespace)
    replica = Replica(namespace, live)
    feed = asyncio.create_task(replica.run())
    await replica.wait_complete(10_000)
    registry = Registry(namespace, replica, live, worker="benchmark")
    for number in range(BROKERS):
        registration = Registration(
            cluster="DefaultCluster",
            broker=f"broker-{number}",
            broker_id=0,
            address=f"127.0.0.{number + 1}:10911",
            topics={"TopicA": QueueData()},
            full=True,
        )
        seat = Seat(registration.cluster, registration.broker, registration.broker_id)
        await registry.register(seat, (), partial(_given, registration), Caller("benchmark"))
    try:
        yield registry, live, metrics
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
        await client.close()


async def _given(registration: Registration) -> Registration:
    return registration


def bare(body: bytes) -> ASGIApp:
    """The minimal ASGI application with the same answer."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def call(app: ASGIApp, query: bytes, body: bytes) -> Lookup:
    """Calls the application as a server does."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/routes/TopicA",
        "raw_path": b"/v1/routes/TopicA",
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8080"), (b"accept", b"*/*")],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            assert message["body"] == body

    async def lookup() -> None:
        await app({**scope, "state": {}}, receive, send)

    return lookup


async def over_connection(stack: AsyncExitStack, app: ASGIApp, query: bytes, body: bytes) -> Lookup:
    """Sends requests over a socket, one after the other."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = http_server(app, request_timeout_ms=10_000, drain_ms=1000)
    serving = asyncio.create_task(server._serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*listener.getsockname())

    async def close() -> None:
        writer.close()
        server.should_exit = True
        await serving

    stack.push_async_callback(close)
    target = b"/v1/routes/TopicA" + (b"?" + query if query else b"")
    request = b"GET " + target + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"

    async def lookup() -> None:
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(body)) == body

    return lookup


async def in_turns(lookups: dict[str, Lookup], seconds: float) -> dict[str, float]:
    """Median microseconds of each, measured in turn."""
    taken: dict[str, list[float]] = {name: [] for name in lookups}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, lookup in lookups.items():
            start = time.perf_counter()
            for _ in range(CALLS_A_TURN):
                await lookup()
            taken[name].append((time.perf_counter() - start) / CALLS_A_TURN * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def show(title: str, medians: dict[str, float]) -> None:
    print(title)
    for name, median in medians.items():
        print(f"  {name:10} {median:8.1f} us   {median / medians['bare']:5.1f} x bare")


async def measure(seconds: float) -> None:
    with EmbeddedStore(None) as store:
        async with filled_registry(store.url) as (registry, live, metrics), AsyncExitStack() as stack:
            body = registry.find_route("TopicA")
            ours = create_app(registry, live, metrics)
            apps: dict[str, ASGIApp] = {"bare": bare(body), "lookup": ours, "fastapi": ours}
            called = {name: call(app, WAYS[name], body) for name, app in apps.items()}
            asked = {name: await over_connection(stack, app, WAYS[name], body) for name, app in apps.items()}
            print(f"a route of {BROKERS} brokers, {len(body)} bytes")
            show("called without a server", await in_turns(called, seconds / 2))
            show("over a keep-alive connection (client and server in one process)", await in_turns(asked, seconds / 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    uvloop.run(measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
