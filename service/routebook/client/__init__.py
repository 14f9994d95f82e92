"""A client library for programs that are no RocketMQ peers: routes, registrations, and the history of changes.

    from routebook.client import Client

    with Client("http://names-1:8080,http://names-2:8080") as names:
        route = names.lookup("TopicA")
        print(route.brokers["broker-a"].select_address(), route.write_queues())

`AsyncClient` has the same methods as coroutines. A client may have several addresses: it stays with one until that
fails. Requests are repeated with growing pauses; registrations and heartbeats too, because they are idempotent.

It needs httpx and msgspec, not the service: `pip install routebook-client` installs this package alone.
"""

from routebook.client.asynchronous import AsyncClient, AsyncRegistration
from routebook.client.model import (
    Broker,
    Change,
    ClientError,
    HistoryLostError,
    NotAllowedError,
    NotFoundError,
    Queue,
    Queues,
    RefusedError,
    Route,
    RouteEvent,
    UnreachableError,
)
from routebook.client.synchronous import Client, Registration

__all__ = [
    "AsyncClient",
    "AsyncRegistration",
    "Broker",
    "Change",
    "Client",
    "ClientError",
    "HistoryLostError",
    "NotAllowedError",
    "NotFoundError",
    "Queue",
    "Queues",
    "RefusedError",
    "Registration",
    "Route",
    "RouteEvent",
    "UnreachableError",
]
