"""An acceptor on a free loopback port, a protocol that remembers, and clients that say what they like."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from routebook.listeners.acceptor import Acceptor
from routebook.listeners.arrival import Arrival
from routebook.observability.metrics import Metrics
from tests.support.waiting import until


class Heard(asyncio.Protocol):
    """Answers everything with the same bytes, and remembers them."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
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
        self.made: list[Heard] = []
        self.acceptor = Acceptor(self.listener, self._make, metrics=self.metrics, **options)

    def _make(self, arrival: Arrival) -> Heard:
        self.made.append(Heard(arrival))
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


class Peer:
    """A client with a socket of its own: what it says goes out at once and as one segment."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.name = f"127.0.0.1:{sock.getsockname()[1]}"

    @classmethod
    async def to(cls, port: int, host: str = "127.0.0.1") -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, 0))
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(sock)

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def hear(self, size: int) -> bytes:
        """So many bytes, or what came before the end."""
        heard = b""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            while len(heard) < size:
                try:
                    part = await loop.sock_recv(self.sock, size - len(heard))
                except ConnectionResetError:
                    part = b""
                if not part:
                    break
                heard += part
        return heard

    async def is_closed(self) -> bool:
        """Waits for the end, whichever way it comes; fails when it does not."""
        return await self.hear(1) == b""

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def peer(port: int, host: str = "127.0.0.1") -> AsyncIterator[Peer]:
    one = await Peer.to(port, host)
    try:
        yield one
    finally:
        one.close()
