"""A replica that follows a store, changes of the store, and losses of its data."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from routebook.replica.replica import Replica
from routebook.settings import LiveSettings, load
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from routebook.store.reads import read_history_head
from routebook.store.removal import Removal, unregister_brokers
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.reference.build import registration
from tests.support.scripts import NO_BRAKE
from tests.support.waiting import until

Snapshot = Mapping[bytes, bytes]


def new_replica(namespace: Namespace, **settings: object) -> Replica:
    flags = {name: str(value).lower() for name, value in settings.items()}
    return Replica(namespace, LiveSettings(load(flags)))


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[Replica]:
    task = asyncio.create_task(replica.run())
    try:
        await replica.wait_complete(30_000)
        yield replica
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def following(namespace: Namespace, **settings: object) -> AsyncIterator[Replica]:
    async with running(new_replica(namespace, **settings)) as replica:
        yield replica


@asynccontextmanager
async def client_at(url: str, keys: Keys) -> AsyncIterator[StoreClient]:
    client = StoreClient(StoreUrl.parse(url), slot_key=keys.meta, timeout_ms=1000)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def following_at(url: str, keys: Keys, scripts: ScriptSet) -> AsyncIterator[Replica]:
    """Over a connection of its own, for instance through a proxy."""
    async with client_at(url, keys) as client, following(Namespace(client, keys, scripts)) as replica:
        yield replica


async def register(namespace: Namespace, *args: Any, **changes: Any) -> int:
    """Returns the version. One topic is enough for a new broker."""
    return (await PlainWorker(namespace).register(registration(*args, **({"full": True} | changes)))).version


async def unregister(
    namespace: Namespace, broker: str, address: str, *, broker_id: int = 0, carried: bool = False
) -> int:
    removal = Removal("east", broker, broker_id, address, carried=carried)
    return (await unregister_brokers(namespace, [(removal, CALLER)], NO_BRAKE)).version


async def caught_up(namespace: Namespace, *replicas: Replica) -> None:
    """Waits until all replicas have the version of the store."""

    async def same() -> bool:
        head = await read_history_head(namespace)
        return all(one.position.is_same_history(head) and one.version == head.version for one in replicas)

    await until(same)


async def keys_of(namespace: Namespace) -> list[bytes]:
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, keys = await namespace.client.call("SCAN", cursor, "MATCH", namespace.keys.table("*"), "COUNT", 1000)
        found += keys
        if cursor == b"0":
            return found


async def take_snapshot(namespace: Namespace) -> Snapshot:
    """The state of a store replica that lags behind."""
    keys = await keys_of(namespace)
    dumps = await namespace.client.pipeline([("DUMP", key) for key in keys])
    return dict(zip(keys, dumps, strict=True))


async def lose_everything(namespace: Namespace) -> None:
    if keys := await keys_of(namespace):
        await namespace.client.call("UNLINK", *keys)


async def fall_back(namespace: Namespace, snapshot: Snapshot) -> None:
    """A failover to a primary that lacks the newest changes."""
    remove = [("UNLINK", key) for key in await keys_of(namespace) if key not in snapshot]
    restore = [("RESTORE", key, 0, dump, "REPLACE") for key, dump in snapshot.items()]
    await namespace.client.pipeline([("MULTI",), *remove, *restore, ("EXEC",)])
