"""A peer made of bytes: none of them are made by `wire`."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

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
    serving: set[asyncio.Task[None]] = set()
    failures: list[Exception] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            serving.add(task)
        try:
            await play(Peer(reader, writer))
        except Exception as error:
            failures.append(error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # Who has connected and left again may still stand in the queue; accepted by a server that is closed, the
        # connection would be nobody's. A look at the queue, the transport, its protocol and its task are a turn each.
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            # Somebody may have been accepted while the others were waited for.
            while left := [task for task in serving if not task.done()]:
                await asyncio.gather(*left)
        if failures:
            raise failures[0]
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        server.close()
        await server.wait_closed()
