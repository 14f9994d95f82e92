"""A12: a registration is no port scanner. Which addresses are dialled is limited, and the outcome tells nothing."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from routebook.store.namespace import Namespace
from tests.attacks.attacked_service import attacked_service
from tests.attacks.removed_brokers import Brokers, broker_names, make_established, removed
from tests.support.waiting import until

GRACE_MS = 1500


class OpenPort:
    """Counts the connections that it accepts."""

    def __init__(self) -> None:
        self.accepted = 0
        self.address = ""

    async def listen(self, stack: AsyncExitStack) -> "OpenPort":
        server = await asyncio.start_server(self._accept, "127.0.25.1", 0)
        stack.callback(server.close)
        self.address = f"127.0.25.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        writer.close()


async def test_open_and_closed_ports_look_the_same_to_a_peer_that_registers_them(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    grace = ("--connection-grace-ms", str(GRACE_MS))
    async with AsyncExitStack() as stack, Brokers() as registered:
        service = await stack.enter_async_context(
            attacked_service(store_url, namespace.keys.namespace, tmp_path, *grace)
        )
        await registered.register("broker-1", "127.0.25.3:10911", service.remoting)
        await make_established(namespace)
        port = await OpenPort().listen(stack)
        for name, address in {"open": port.address, "closed": "127.0.25.2:10911"}.items():
            (await registered.register(name, address, service.remoting)).peer.abort()
        await asyncio.sleep(GRACE_MS / 1000 + 2)
        assert await broker_names(service) == {"broker-1"}
        first, second = await removed(namespace)
        assert abs(first.ms - second.ms) < 1000
        assert port.accepted == 0


async def test_addresses_outside_the_networks_are_not_dialled(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """Brokers that have been there for long keep their deadlines instead."""
    flags = ("--connection-grace-ms", str(GRACE_MS), "--dial-networks", "127.0.26.0/24")
    async with AsyncExitStack() as stack, Brokers() as registered:
        service = await stack.enter_async_context(
            attacked_service(store_url, namespace.keys.namespace, tmp_path, *flags)
        )
        port = await OpenPort().listen(stack)
        brokers = {"open": port.address, "closed": "127.0.25.2:10911", "allowed": "127.0.26.1:10911"}
        connected = [await registered.register(*one, service.remoting) for one in brokers.items()]
        for number in range(20):
            await registered.register(f"other-{number}", f"127.0.27.{number + 1}:10911", service.remoting)
        await make_established(namespace)
        for broker in connected:
            broker.peer.abort()

        async def is_allowed_one_gone() -> bool:
            return "allowed" not in await broker_names(service)

        await until(is_allowed_one_gone)
        await asyncio.sleep(1)
        assert {"open", "closed"} <= await broker_names(service)
        assert port.accepted == 0
