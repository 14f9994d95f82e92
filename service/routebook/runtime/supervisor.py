"""`--workers N`: one process that owns the ports and keeps N worker processes running behind them.

All workers accept connections from the socket that the supervisor bound, so a worker that dies loses only the
connections that it had accepted. The supervisor itself serves only its admin port: it asks all workers and merges
their answers. `/livez` asks no worker. `/readyz` succeeds when one worker is ready, because all workers accept from the
same socket.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from routebook.http_api.serving import http_server
from routebook.observability.exposition import ExpositionMerger, WorkerExposition
from routebook.observability.metrics import CONTENT_TYPE, process_exposition
from routebook.runtime.handover import FORCE, STOP, Handover
from routebook.runtime.ports import PublicPorts
from routebook.runtime.stopping import Stop, Unsignalled
from routebook.settings import Loaded
from routebook.store.embedded import make_run_folder

_log = logging.getLogger(__name__)

READY = b"ready\n"
"""Written by a worker process to its standard output once it is ready."""
COMMAND = "worker-process"
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_FORCED_SECONDS = 2.0
_STEADY_SECONDS = 30.0
"""A worker that ran for this time failed for a new reason, so the backoff starts again."""


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """The place of one worker process; a restarted process gets the same."""

    loaded: Loaded
    number: int
    public: PublicPorts
    admin_path: Path


class Child:
    def __init__(self, slot: WorkerSlot) -> None:
        self.slot = slot
        self.ready = asyncio.Event()
        self.failed_code: int | None = None
        """Exit code of a first process that was never ready."""
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def keep_running(self) -> None:
        """Restarts the process until `stop`. Returns early only when the first process ended before it was ready."""
        pause = _FIRST_PAUSE_SECONDS
        was_ready = False
        while True:
            started = time.monotonic()
            code = await self._run_once()
            was_ready = was_ready or self.ready.is_set()
            self.ready.clear()
            if self._is_stopping():
                if code != 0 and was_ready:
                    _log.warning("Worker %d did not end cleanly: %s.", self.slot.number, how_it_ended(code))
                return
            if not was_ready:
                self.failed_code = code
                return
            if time.monotonic() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _log.error("Worker %d ended (%s); restarting it in %.1f s.", self.slot.number, how_it_ended(code), pause)
            await asyncio.sleep(pause)
            if self._is_stopping():
                return
            self.restarts += 1
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def stop_restarting(self) -> None:
        """The running process continues until `stop`; the ports may be closed after this."""
        self._stopping = True

    async def stop(self, grace_seconds: float, forced: asyncio.Event) -> bool:
        """Requests a stop, forces it after the grace or when forced, then kills. False when it had to be killed."""
        self.stop_restarting()
        await self._send(STOP)
        if await self._ended_within(grace_seconds, forced):
            return True
        await self._send(FORCE)
        if await self._ended_within(_FORCED_SECONDS, None):
            return True
        self._kill()
        await self._ended_within(5.0, None)
        return False

    async def _run_once(self) -> int:
        handover = Handover.of(
            self.slot.loaded,
            number=self.slot.number,
            public=self.slot.public,
            admin_socket=self.slot.admin_path,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "routebook",
            COMMAND,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self.slot.public.remoting.fileno(), self.slot.public.http.fileno()),
            # In its own process group: Ctrl-C reaches only the supervisor, which stops its workers in order.
            process_group=0,
        )
        self._process = process
        assert process.stdin is not None  # noqa: S101 it is a pipe
        assert process.stdout is not None  # noqa: S101
        with contextlib.suppress(ConnectionError):
            process.stdin.write(handover.to_line())
            await process.stdin.drain()
        while line := await process.stdout.readline():
            if line == READY:
                self.ready.set()
        return await process.wait()

    def _is_stopping(self) -> bool:
        return self._stopping

    async def _send(self, line: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _ended_within(self, seconds: float, forced: asyncio.Event | None) -> bool:
        if self._process is None:
            return True
        ended = asyncio.ensure_future(self._process.wait())
        waits: set[asyncio.Future[int] | asyncio.Future[Literal[True]]] = {ended}
        if forced is not None:
            waits.add(asyncio.ensure_future(forced.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        return self._process.returncode is not None


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


_REQUEST_SECONDS = 2.0


class SupervisorAdmin:
    def __init__(self, children: Sequence[Child], stop: Stop) -> None:
        self._children = children
        self._stop = stop
        self._merger = ExpositionMerger()
        self._merge_lock = asyncio.Lock()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )

    async def _livez(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _: Request) -> Response:
        answers = await self._ask_all("/readyz")
        ready = sum(answer is not None and answer.status_code == 200 for answer in answers)
        draining = self._stop.asked.is_set()
        body = {
            "status": "draining" if draining else "ok" if ready else "not ready",
            "ready_workers": ready,
            "workers": {str(child.slot.number): _content(answer) for child, answer in self._pairs(answers)},
        }
        return JSONResponse(body, status_code=200 if ready and not draining else 503)

    async def _metrics(self, _: Request) -> Response:
        generations = [child.restarts for child in self._children]
        answers = await self._ask_all("/metrics")
        expositions = [
            WorkerExposition(str(child.slot.number), generation, answer.text)
            for (child, answer), generation in zip(self._pairs(answers), generations, strict=True)
            if answer is not None and answer.status_code == 200
        ]
        own = (
            "# HELP routebook_workers Worker processes that answer.\n# TYPE routebook_workers gauge\n"
            f"routebook_workers {len(expositions)}\n"
            "# HELP routebook_workers_wanted Worker processes that should run.\n"
            "# TYPE routebook_workers_wanted gauge\n"
            f"routebook_workers_wanted {len(self._children)}\n"
            "# HELP routebook_worker_restarts_total Worker processes started again after they died.\n"
            "# TYPE routebook_worker_restarts_total counter\n"
            f"routebook_worker_restarts_total {sum(child.restarts for child in self._children)}\n"
        )
        # This process uses memory, descriptors and CPU time as well, and the limits are for all processes together.
        expositions.append(WorkerExposition("supervisor", 0, process_exposition()))
        async with self._merge_lock:
            merged = await asyncio.to_thread(self._merger.merge, expositions)
        return PlainTextResponse(merged + own, headers={"content-type": CONTENT_TYPE})

    def _pairs(self, answers: list[httpx.Response | None]) -> list[tuple[Child, httpx.Response | None]]:
        return list(zip(self._children, answers, strict=True))

    async def _ask_all(self, path: str) -> list[httpx.Response | None]:
        return await asyncio.gather(*(_get(child.slot.admin_path, path) for child in self._children))


async def _get(socket_path: Path, path: str) -> httpx.Response | None:
    transport = httpx.AsyncHTTPTransport(uds=str(socket_path))
    try:
        async with httpx.AsyncClient(transport=transport, timeout=_REQUEST_SECONDS) as client:
            return await client.get(f"http://worker{path}")
    except httpx.HTTPError:
        return None


def _content(answer: httpx.Response | None) -> object:
    if answer is None:
        return "no answer"
    try:
        return answer.json()
    except json.JSONDecodeError:
        return answer.text


BEYOND_DRAIN_SECONDS = 5.0
"""After draining, a worker gives up its leadership and closes the store."""


class Supervisor:
    def __init__(self, loaded: Loaded, public: PublicPorts, admin: socket.socket, stop: Stop) -> None:
        self._loaded = loaded
        self._public = public
        self._admin = admin
        self._stop = stop
        self._folder = make_run_folder("worker-100.sock")
        self.children = [Child(self._slot(number, public)) for number in range(1, loaded.settings.workers + 1)]

    def _slot(self, number: int, public: PublicPorts) -> WorkerSlot:
        return WorkerSlot(self._loaded, number, public, self._folder / f"worker-{number}.sock")

    async def run(self, announce: Callable[[], None]) -> int:
        """Runs until a stop is requested. Returns 0, or the exit code of a worker that could not start."""
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
        """False when a worker could not start, or a stop was requested meanwhile."""
        ready = asyncio.ensure_future(asyncio.gather(*(child.ready.wait() for child in self.children)))
        asked = asyncio.ensure_future(self._stop.asked.wait())
        waits: set[asyncio.Future[object]] = {ready, asked, *keeping}  # type: ignore[arg-type]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ready.done():
            return True
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
        self._log_failures()
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
        """The workers close their copies. If this one stayed open, connections would wait without a worker."""
        for child in self.children:
            child.stop_restarting()
        self._public.remoting.close()
        self._public.http.close()

    def _log_failures(self) -> None:
        for child in self.children:
            if child.failed_code is not None:
                _log.error("Worker %d could not start (%s).", child.slot.number, how_it_ended(child.failed_code))
