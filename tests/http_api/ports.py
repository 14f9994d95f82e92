"""Real sockets for tests: a server on a free loopback port, and a client that can be as rude as it likes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from routebook.http_api.serving import AcceptorOptions, http_server
from tests.support.waiting import until

PATIENCE_SECONDS = 10.0


@asynccontextmanager
async def served(
    app: ASGIApp,
    *,
    request_timeout_ms: int = 10_000,
    drain_ms: int = 5000,
    acceptor_options: AcceptorOptions | None = None,
) -> AsyncIterator[int]:
    """The port of the application, for as long as the context lasts."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = http_server(
        app,
        request_timeout_ms=request_timeout_ms,
        drain_ms=drain_ms,
        acceptor_options=acceptor_options or AcceptorOptions(),
    )
    # The signals of the test run belong to pytest.
    task = asyncio.create_task(server._serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class Line:
    """One TCP connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, text: str | bytes) -> None:
        if self.writer.is_closing():
            # uvloop's own word for it is RuntimeError.
            raise ConnectionResetError("The other side has closed.")
        self.writer.write(text.encode() if isinstance(text, str) else text)
        await self.writer.drain()

    async def all(self) -> bytes:
        """Everything until the other side closes; fails when it does not."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readuntil(mark)

    async def is_cut(self) -> bool:
        """Whether the other side has closed, tried by saying one byte more."""
        if self.reader.at_eof():
            return True
        try:
            await self.say(b"x")
        except ConnectionError:
            return True
        return self.reader.at_eof()


@asynccontextmanager
async def line_to(port: int, *, read_limit: int = 2**20) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=read_limit)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()
