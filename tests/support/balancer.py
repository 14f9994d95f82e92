"""A TCP balancer inside the test: connections to the servers in turn, to the next one where nobody listens."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Balancer:
    def __init__(self, servers: Sequence[str]) -> None:
        self.servers = list(servers)
        self.address = ""
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection at once, on both sides, as when it is restarted."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            there_reader, there = await self._connect()
        except ConnectionError:
            pass
        else:
            self._writers.add(there)
            await asyncio.gather(_pass_on(reader, there), _pass_on(there_reader, writer))
            self._writers.discard(there)
        writer.close()
        self._writers.discard(writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.servers:
            host, _, port = self.servers[self._next % len(self.servers)].rpartition(":")
            self._next += 1
            try:
                return await asyncio.open_connection(host, int(port))
            except ConnectionError:
                continue
        raise ConnectionError("no server listens")


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
