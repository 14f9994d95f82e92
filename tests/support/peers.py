"""The other end of a connection, for tests: it shares no code with the service."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.protocol.plain_frames import framed

TIMEOUT_S = 30.0


class Answer(NamedTuple):
    code: int
    ext: dict[str, str] | None
    remark: str | None
    body: bytes
    opaque: int


class Peer:
    """One TCP connection, used as bytes, as frames, or as requests with JSON headers and their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.address = "{}:{}".format(*writer.get_extra_info("sockname")[:2])
        """This side's own address."""
        self._opaque = 0

    @classmethod
    async def connect(cls, address: str, **options: Any) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**25, **options))

    @classmethod
    async def over(cls, sock: socket.socket) -> Self:
        """On a socket that is connected already. It belongs to the peer from now on."""
        return cls(*await asyncio.open_connection(sock=sock, limit=2**25))

    async def start_tls(self, context: ssl.SSLContext) -> None:
        await self.writer.start_tls(context, server_hostname="localhost")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Closes the connection at once and drops what has not been sent."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """Sends the rest, then closes the connection."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def send(self, *parts: bytes) -> None:
        """Sends the parts as one segment, if the connection has room, before it returns."""
        self.writer.write(b"".join(parts))
        await self.writer.drain()
        # uvloop writes at the end of a turn of the loop.
        await asyncio.sleep(0)

    async def receive(self, size: int) -> bytes:
        """That many bytes, or fewer if the other side closes the connection before."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.readexactly(size)
            except asyncio.IncompleteReadError as error:
                return error.partial
            except ConnectionError:
                return b""

    async def read_to_end(self) -> bytes:
        """All bytes until the other side closes the connection; fails if it does not."""
        received = b""
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionError):
                while part := await self.reader.read(2**16):
                    received += part
        return received

    async def is_closed(self) -> bool:
        """Waits until the other side closes the connection, and drops what comes before; fails if it does not."""
        await self.read_to_end()
        return True

    async def frame(self, timeout_s: float | None = TIMEOUT_S) -> bytes:
        """The next frame, with its length."""
        async with asyncio.timeout(timeout_s):
            length = await self.reader.readexactly(4)
            return length + await self.reader.readexactly(struct.unpack(">i", length)[0])

    def request(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, version: int = 479, flag: int = 0
    ) -> bytes:
        """A frame with a request number that this peer has not used yet."""
        self._opaque += 1
        header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": self._opaque}
        header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
        if ext is not None:
            header["extFields"] = ext
        return framed(json.dumps(header).encode(), body)

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, version: int = 479
    ) -> Answer:
        self.write(self.request(code, ext, body, version=version))
        answer = await self.answer()
        assert answer.opaque == self._opaque
        return answer

    async def answer(self) -> Answer:
        """The next answer, to whichever request."""
        header, body = split_json_frame(await self.frame())
        assert header["flag"] == 1
        return Answer(header["code"], header.get("extFields"), header.get("remark"), body, header["opaque"])

    def send_oneway(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.write(self.request(code, ext, body, flag=2))


def split_json_frame(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and body."""
    assert frame[4] == 0, "a binary header"
    end = 8 + int.from_bytes(frame[5:8], "big")
    return json.loads(frame[8:end]), frame[end:]


Play = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def server_playing(play: Play, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that runs `play` on each connection. A failure in `play` fails the test."""
    tasks: set[asyncio.Task[None]] = set()
    failures: list[Exception] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            tasks.add(task)
        peer = Peer(reader, writer)
        try:
            await play(peer)
        except Exception as error:
            failures.append(error)
        finally:
            await peer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # A connection that its client has closed already may still be in the queue, and has to be accepted before the
        # server is closed. Accepting it, its transport, its protocol and its task take one turn of the loop each.
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            # Others may be accepted while these end.
            while left := [task for task in tasks if not task.done()]:
                await asyncio.gather(*left)
        if failures:
            raise failures[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        await server.wait_closed()
