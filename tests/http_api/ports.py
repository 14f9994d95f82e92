"""Real sockets for tests: a server on a free loopback port, and a client that sends arbitrary bytes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from routebook.http_api.serving import AcceptorOptions, http_server
from tests.support.waiting import until

TIMEOUT_SECONDS = 10.0


@asynccontextmanager
async def served(
    app: ASGIApp,
    *,
    request_timeout_ms: int = 10_000,
    drain_ms: int = 5000,
    acceptor_options: AcceptorOptions | None = None,
) -> AsyncIterator[int]:
    """Serves the application and yields its port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = http_server(
        app,
        request_timeout_ms=request_timeout_ms,
        drain_ms=drain_ms,
        acceptor_options=acceptor_options or AcceptorOptions(),
    )
    # `_serve` leaves the signal handlers to pytest.
    task = asyncio.create_task(server._serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class RawConnection:
    """A TCP connection that sends and receives bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, text: str | bytes) -> None:
        if self.writer.is_closing():
            # uvloop would raise RuntimeError.
            raise ConnectionResetError("The server has closed the connection.")
        self.writer.write(text.encode() if isinstance(text, str) else text)
        await self.writer.drain()

    async def read_all(self) -> bytes:
        """Reads until the server closes the connection. Fails when it does not."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def read_until(self, end: bytes) -> bytes:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.reader.readuntil(end)

    async def is_closed(self) -> bool:
        """Whether the server has closed the connection. Sends one byte to find out."""
        if self.reader.at_eof():
            return True
        try:
            await self.send(b"x")
        except ConnectionError:
            return True
        return self.reader.at_eof()


@asynccontextmanager
async def raw_connection(port: int, *, read_limit: int = 2**20) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=read_limit)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()
