"""A peer made of bytes: none of them are made by `wire`."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Play = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection, from the side that is called."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def frame(self) -> bytes:
        """The next one that arrives, without its length."""
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    async def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def ends(self) -> bool:
        """Whether the caller has closed the connection, with nothing more to say."""
        try:
            return await self._reader.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def peer(play: Play, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that plays this with each who connects; what fails in it fails the test."""
    plays: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plays.append(asyncio.ensure_future(play(Peer(reader, writer))))
        await asyncio.wait(plays[-1:])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(10):
            await asyncio.gather(*plays)
    finally:
        for task in plays:
            task.cancel()
        server.close()
        await server.wait_closed()
