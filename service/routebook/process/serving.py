"""uvicorn inside a process that has its own way to stop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from routebook.http_api.serving import Front, HttpServer


class Unsignalled(HttpServer):
    """uvicorn takes SIGINT and SIGTERM for itself; here the process stops in its own order."""

    def __init__(self, config: uvicorn.Config, front: Front | None = None) -> None:
        super().__init__(config, front)
        self.accepts = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A server that runs beside its owner."""

    def __init__(self, server: HttpServer, listener: socket.socket) -> None:
        self.server = Unsignalled(server.config, server.front)
        # Ours ends earlier and counts; uvicorn's own stays behind it as a net.
        server.config.timeout_graceful_shutdown = (server.config.timeout_graceful_shutdown or 0) + 2
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._forced = asyncio.Event()

    async def start(self) -> None:
        """Returns when it accepts connections."""
        self._task = asyncio.create_task(self.server.serve(sockets=[self._listener]))
        accepts = asyncio.ensure_future(self.server.accepts.wait())
        await asyncio.wait({accepts, self._task}, return_when=asyncio.FIRST_COMPLETED)
        accepts.cancel()
        if self._task.done():
            self._task.result()

    def force(self) -> None:
        """Wait for nobody any more."""
        self._forced.set()

    async def stop(self, drain_seconds: float) -> int:
        """No new connections; requests under way end, or are cancelled after the drain time: how many."""
        if self._task is None:
            self._listener.close()
            return 0
        self.server.should_exit = True
        forced = asyncio.ensure_future(self._forced.wait())
        await asyncio.wait({self._task, forced}, timeout=drain_seconds, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        left = [task for task in self.server.server_state.tasks if not task.done()]
        for task in left:
            task.cancel()
        self.server.force_exit = True
        await self._task
        return len(left)
