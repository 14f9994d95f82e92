"""A TCP balancer in front of several servers: connections go to them in turn, and servers that are down are skipped.

It runs in a thread of its own, so that tests with and without an event loop can use it.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK_BYTES = 65536
CALL_SECONDS = 10.0

Observer = Callable[[int, bool, bytes], None]
"""Called in the balancer's thread with the number of the connection, whether the client sent the bytes, and the bytes.
Empty bytes: this direction was closed.
"""


class TcpBalancer:
    """`with TcpBalancer([port, …]) as balancer: … balancer.port …`"""

    def __init__(self, upstream_ports: Sequence[int], *, observer: Observer | None = None) -> None:
        self.upstream_ports = tuple(upstream_ports)
        """May be replaced at any time. This affects new connections only."""
        self.port = 0
        self.served: dict[int, int] = {}
        """Connections that each upstream was given."""
        self._observer = observer
        self._turns = itertools.count()
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[int, tuple[asyncio.StreamWriter, asyncio.StreamWriter]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer")
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def restart(self) -> None:
        """Stops listening, resets every connection and listens again, as a balancer that is replaced."""
        self._call(self._restart())

    def cut(self) -> None:
        """Resets every connection, and stays open for new ones."""
        self._call(self._reset_all())

    def upstream_of(self, connection: int) -> int | None:
        """The port; None if this connection was closed."""
        return self._open[connection][0] if connection in self._open else None

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _restart(self) -> None:
        await self._refuse()
        await self._listen()

    async def _refuse(self) -> None:
        if self._server:
            self._server.close()
        await self._reset_all()

    async def _reset_all(self) -> None:
        for _, pair in list(self._open.values()):
            for writer in pair:
                _reset(writer)

    async def _close(self) -> None:
        await self._refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._serve(reader, writer)
        _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port, upstream = await self._choose()
        if not upstream:
            return
        number = next(self._numbers)
        self.served[port] = self.served.get(port, 0) + 1
        self._open[number] = (port, (writer, upstream[1]))
        try:
            forward = asyncio.create_task(self._copy(number, True, reader, upstream[1]))
            await self._copy(number, False, upstream[0], writer)
            await forward
        finally:
            forward.cancel()
            _reset(upstream[1])
            del self._open[number]

    async def _choose(self) -> tuple[int, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        ports = self.upstream_ports
        start = next(self._turns)
        for turn in range(len(ports)):
            port = ports[(start + turn) % len(ports)]
            with contextlib.suppress(OSError):
                return port, await asyncio.open_connection(HOST, port)
        return 0, None

    async def _copy(
        self, number: int, from_client: bool, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        """Passes the end of the stream on as well, after everything that was sent before it."""
        try:
            while data := await source.read(CHUNK_BYTES):
                if self._observer:
                    self._observer(number, from_client, data)
                target.write(data)
                await target.drain()
            target.write_eof()
        except (OSError, RuntimeError):
            _reset(target)
        finally:
            if self._observer:
                self._observer(number, from_client, b"")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes the connection as the kernel does for a killed process, without waiting for the other side."""
    if not writer.is_closing():
        connection = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
