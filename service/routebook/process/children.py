"""One worker process of a supervisor: started, watched, started again when it dies."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from routebook.process.handover import Handover
from routebook.process.listening import PublicPorts
from routebook.process.parent import FORCE, STOP
from routebook.settings import Loaded

_log = logging.getLogger(__name__)

READY = b"ready\n"
"""What a worker process writes to its standard output once it answers."""
COMMAND = "worker-process"
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_FORCED_SECONDS = 2.0
_STEADY_SECONDS = 30.0
"""A worker that ran so long died of something new: the pauses start small again."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What each of its processes is given."""

    loaded: Loaded
    number: int
    public: PublicPorts
    admin_path: Path


class Child:
    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.ready = asyncio.Event()
        self.failed_code: int | None = None
        """How it ended, when it never came to answer."""
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def keep_running(self) -> None:
        """Until `stop`. Returns early only when the very first process ended before it was ready."""
        pause = _FIRST_PAUSE_SECONDS
        was_ready = False
        while True:
            started = time.monotonic()
            code = await self._run_once()
            was_ready = was_ready or self.ready.is_set()
            self.ready.clear()
            if self._is_stopping():
                if code != 0 and was_ready:
                    _log.warning("Worker %d did not end in order: %s.", self.seat.number, how_it_ended(code))
                return
            if not was_ready:
                self.failed_code = code
                return
            if time.monotonic() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _log.error("Worker %d ended (%s); another one in %.1f s.", self.seat.number, how_it_ended(code), pause)
            await asyncio.sleep(pause)
            if self._is_stopping():
                return
            self.restarts += 1
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def start_no_more(self) -> None:
        """The one that runs goes on until `stop`; the ports for another one may be closed."""
        self._stopping = True

    async def stop(self, grace_seconds: float, forced: asyncio.Event) -> bool:
        """Asks, insists when forced or out of time, then kills. False when it had to be killed."""
        self.start_no_more()
        await self._tell(STOP)
        if await self._ended_within(grace_seconds, forced):
            return True
        await self._tell(FORCE)
        if await self._ended_within(_FORCED_SECONDS, None):
            return True
        self._kill()
        await self._ended_within(5.0, None)
        return False

    async def _run_once(self) -> int:
        handover = Handover.of(
            self.seat.loaded,
            number=self.seat.number,
            public=self.seat.public,
            admin_socket=self.seat.admin_path,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "routebook",
            COMMAND,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self.seat.public.remoting.fileno(), self.seat.public.http.fileno()),
            # A group of its own: Ctrl-C goes to the supervisor, which stops its workers in order.
            process_group=0,
        )
        self._process = process
        assert process.stdin is not None  # noqa: S101 asked for above
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

    async def _tell(self, line: bytes) -> None:
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
