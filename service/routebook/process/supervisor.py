"""`--workers N`: one process that owns the ports and keeps N worker processes running behind them.

All workers accept from the one socket that the supervisor took, so a worker that dies loses only what it had
accepted.
The supervisor answers no request but those of its admin port.
"""

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable

from routebook.http_api.serving import http_server
from routebook.process.children import Child, Seat, how_it_ended
from routebook.process.listening import PublicPorts
from routebook.process.serving import Unsignalled
from routebook.process.stopping import Stop
from routebook.process.supervisor_admin import SupervisorAdmin
from routebook.settings import Loaded
from routebook.store.data_folder import make_run_folder

_log = logging.getLogger(__name__)

BEYOND_DRAIN_SECONDS = 5.0
"""After its requests a worker gives up its leadership and closes the store."""


class Supervisor:
    def __init__(self, loaded: Loaded, public: PublicPorts, admin: socket.socket, stop: Stop) -> None:
        self._loaded = loaded
        self._public = public
        self._admin = admin
        self._stop = stop
        self._folder = make_run_folder("worker-100.sock")
        self.children = [Child(self._seat(number, public)) for number in range(1, loaded.settings.workers + 1)]

    def _seat(self, number: int, public: PublicPorts) -> Seat:
        return Seat(self._loaded, number, public, self._folder / f"worker-{number}.sock")

    async def run(self, announce: Callable[[], None]) -> int:
        """Until asked to stop. The exit code: 0, or that of a worker that could not even start."""
        try:
            async with asyncio.TaskGroup() as group:
                keeping = [group.create_task(child.keep_running()) for child in self.children]
                server = self._admin_server()
                serving = group.create_task(server.serve(sockets=[self._admin]))
                if await self._all_ready(keeping):
                    announce()
                    await self._until_stop_or_collapse(keeping)
                await self._stop_children()
                server.should_exit = True
                await serving
                for task in keeping:
                    task.cancel()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return next((code for child in self.children if (code := child.failed_code) is not None), 0)

    def _admin_server(self) -> Unsignalled:
        settings = self._loaded.settings
        app = SupervisorAdmin(self.children, self._stop).app()
        made = http_server(app, request_timeout_ms=settings.request_timeout_ms, drain_ms=1000)
        return Unsignalled(made.config)

    async def _all_ready(self, keeping: list[asyncio.Task[None]]) -> bool:
        """False when a worker could not start, or a stop was asked for meanwhile."""
        ready = asyncio.ensure_future(asyncio.gather(*(child.ready.wait() for child in self.children)))
        asked = asyncio.ensure_future(self._stop.asked.wait())
        waits: set[asyncio.Future[object]] = {ready, asked, *keeping}  # type: ignore[arg-type]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ready.done():
            return True
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
        self._say_failures()
        return False

    async def _until_stop_or_collapse(self, keeping: list[asyncio.Task[None]]) -> None:
        asked = asyncio.ensure_future(self._stop.asked.wait())
        waits: set[asyncio.Future[object]] = {asked, *keeping}  # type: ignore[arg-type]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()

    async def _stop_children(self) -> None:
        self._stop.ask("a worker could not start")
        self._close_ports()
        grace = self._loaded.settings.drain_ms / 1000 + BEYOND_DRAIN_SECONDS
        orderly = await asyncio.gather(*(child.stop(grace, self._stop.forced) for child in self.children))
        if not all(orderly):
            _log.warning("%d of %d workers had to be killed.", orderly.count(False), len(orderly))

    def _close_ports(self) -> None:
        """Workers close theirs; with this one open, connections would be taken that nobody is there to answer."""
        for child in self.children:
            child.start_no_more()
        self._public.remoting.close()
        self._public.http.close()

    def _say_failures(self) -> None:
        for child in self.children:
            if child.failed_code is not None:
                _log.error("Worker %d could not start (%s).", child.seat.number, how_it_ended(child.failed_code))
