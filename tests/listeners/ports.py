"""An acceptor on a free loopback port, and a protocol that records what it receives."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from routebook.listeners.acceptor import Acceptor, ConnectionInfo
from routebook.observability.metrics import Metrics
from tests.support.waiting import until


class Echo(asyncio.Protocol):
    """Sends everything back, and records it."""

    def __init__(self, info: ConnectionInfo) -> None:
        self.info = info
        self.data = b""
        self.ended = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        assert self.transport is not None
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class Port:
    def __init__(self, **options: Any) -> None:
        self.metrics = Metrics()
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.number: int = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"
        self.made: list[Echo] = []
        self.acceptor = Acceptor(self.listener, self._make, metrics=self.metrics, **options)

    def _make(self, info: ConnectionInfo) -> Echo:
        self.made.append(Echo(info))
        return self.made[-1]

    def refused(self, reason: str, port: str = "remoting") -> float:
        labels = {"port": port, "reason": reason}
        return self.metrics.registry.get_sample_value("routebook_connections_refused_total", labels) or 0


@asynccontextmanager
async def accepting(**options: Any) -> AsyncIterator[Port]:
    port = Port(**options)
    port.acceptor.start()
    try:
        yield port
    finally:
        port.acceptor.close()
        await port.acceptor.wait_closed()
        for one in port.made:
            if one.transport is not None:
                one.transport.abort()
        await until(lambda: port.acceptor.open_connections == 0)
