"""A TCP proxy inside the test that injects network faults in either direction: delay, stall, black hole, end of stream,
reset and refusal.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65536


@dataclass
class Direction:
    """What happens to the bytes that flow one way."""

    delay_s: float = 0.0
    """Delay of each chunk. It does not add up over chunks."""
    black_hole: bool = False
    """Drops all bytes and keeps the connections open, as a firewall that forgot them."""
    dropped_bytes: int = 0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def end(self) -> None:
        """Ends this direction of the open connections: the receiver reads the end of the stream."""
        for writer in self.writers.copy():
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()


class FaultProxy:
    """A proxy in front of one server: `async with FaultProxy.before(url) as proxy: … proxy.url …`. A fault affects open
    and new connections until `heal`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.port = 0
        self.accepted = 0
        self.requests = Direction()
        self.answers = Direction()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.heal()

    @classmethod
    def before(cls, url: str) -> Self:
        """`url` is that of the run's store: `redis://host:port`."""
        host, _, port = url.removeprefix("redis://").rpartition(":")
        return cls(host, int(port))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def delay(self, seconds: float) -> None:
        """Delays each direction."""
        self.requests.delay_s = self.answers.delay_s = seconds

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def accept(self) -> None:
        """Listens, again on the port it had before."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuses new connections and resets open ones, as a server that is down."""
        if self._server:
            self._server.close()
        self.cut()

    def stall(self) -> None:
        """Passes nothing on but keeps connections open, as a server that hangs or a network partition. Data is kept for
        later, as TCP does.
        """
        self.requests.flows.clear()
        self.answers.flows.clear()

    def hold_answers(self) -> None:
        """Passes requests on, and keeps back the answers."""
        self.answers.flows.clear()

    def black_hole(self) -> None:
        """Drops everything in both directions. `heal` does not bring back what was dropped, so a connection that lost
        bytes has to be closed with `cut`.
        """
        self.requests.black_hole = self.answers.black_hole = True

    def heal(self) -> None:
        self.delay(0.0)
        for direction in (self.requests, self.answers):
            direction.black_hole = False
            direction.flows.set()

    def cut(self) -> None:
        """Resets every connection."""
        for writer in self._writers.copy():
            if not writer.is_closing():
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            upstream_reader, upstream = await asyncio.open_connection(*self._upstream)
            self._writers.add(upstream)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, upstream, self.requests))
                pumps.create_task(self._pump(upstream_reader, writer, self.answers))
        except* OSError:
            pass
        finally:
            for end in filter(None, (writer, upstream)):
                self._writers.discard(end)
                end.transport.abort()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(due - loop.time())
                await direction.flows.wait()
                if not data or writer.is_closing():
                    raise ConnectionResetError
                if direction.black_hole:
                    direction.dropped_bytes += len(data)
                    continue
                writer.write(data)
                await writer.drain()

        direction.writers.add(writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(deliver())
                data: bytes | None = None
                while data != b"":
                    data = await reader.read(CHUNK_BYTES)
                    waiting.put_nowait((loop.time() + direction.delay_s, data))
        finally:
            direction.writers.discard(writer)
