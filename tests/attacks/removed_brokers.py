"""Brokers as plain connections, for the attacks that try to remove them or to keep them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from routebook.store.history import Change, changes_between
from routebook.store.namespace import Namespace
from tests.remoting.port import BROKER_A, registration_body
from tests.runtime.running import Running
from tests.support.peers import Peer

BODY = registration_body("TopicA", "TopicB")


class Brokers:
    """Closes the connections of all brokers at the end."""

    def __init__(self) -> None:
        self._connected: list[ConnectedBroker] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for broker in self._connected:
            broker.peer.abort()
        for broker in self._connected:
            await broker.peer.close()

    async def register(self, name: str, address: str, at: str, timeout_ms: int = 120_000) -> "ConnectedBroker":
        """Registers over a connection of its own to the name server at `at`."""
        broker = ConnectedBroker(name, address, await Peer.connect(at))
        self._connected.append(broker)
        await broker.register_again(timeout_ms)
        return broker


@dataclass(frozen=True)
class ConnectedBroker:
    name: str
    address: str
    peer: Peer

    async def register_again(self, timeout_ms: int = 120_000) -> None:
        ext = BROKER_A | {
            "brokerName": self.name,
            "brokerAddr": self.address,
            "heartbeatTimeoutMillis": str(timeout_ms),
        }
        assert (await self.peer.ask(103, ext, BODY)).code == 0

    async def keep_registering(self, every_s: float, timeout_ms: int) -> None:
        while True:
            await self.register_again(timeout_ms)
            await asyncio.sleep(every_s)


async def make_established(namespace: Namespace) -> None:
    """As if all brokers that are registered now had been there for long."""
    await namespace.client.call("HSET", namespace.keys.meta, "began_at", 1)
    await namespace.client.call("DEL", namespace.keys.table("new-instances"))


async def broker_names(service: Running) -> set[str]:
    answer = await asyncio.to_thread(service.get, "/v1/brokers?limit=1000")
    return {broker["name"] for broker in answer.json()["brokers"]}


async def removed(namespace: Namespace) -> Sequence[Change]:
    changes = await changes_between(namespace, 0, 10_000)
    return [change for change in changes if change.kind == "broker-removed"]
