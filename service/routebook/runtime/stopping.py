"""Stopping a process: the first signal requests a stop, the second forces it; and uvicorn servers that follow this.

Every wait during a stop goes through `within`, so that each has a deadline and none outlives a second signal.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn

from routebook.http_api.serving import AcceptorOptions, HttpServer

_log = logging.getLogger(__name__)

# SIGHUP: closing the terminal stops `up`, like Ctrl-C.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self._signals = 0
        self._on_force: list[Callable[[], None]] = []

    def ask(self, reason: str) -> None:
        if not self.asked.is_set():
            _log.info("Stopping: %s.", reason)
            self.asked.set()

    def force(self, reason: str) -> None:
        if not self.forced.is_set():
            _log.warning("Forced (%s): running requests are cut off.", reason)
            self.asked.set()
            self.forced.set()
            for callback in self._on_force:
                callback()

    def on_force(self, callback: Callable[[], None]) -> None:
        self._on_force.append(callback)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Under nohup, a closed terminal must be ignored.
        signals = [one for one in _SIGNALS if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
        for one in signals:
            loop.add_signal_handler(one, self._signalled, one)
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)

    def _signalled(self, one: signal.Signals) -> None:
        self._signals += 1
        if self._signals == 1:
            self.ask(f"signal {one.name}; a second one forces the stop")
        else:
            self.force(f"second signal: {one.name}")

    async def within(self, seconds: float, work: Coroutine[Any, Any, Any], what: str) -> bool:
        """False when the deadline passed or the stop was forced first; the work is cancelled then."""
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self.forced.wait())
        try:
            await asyncio.wait({task, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
            _log.warning("%s was cut off.", what)
            return False
        if task.exception() is not None:
            _log.error("%s failed.", what, exc_info=task.exception())
            return False
        return True


class Unsignalled(HttpServer):
    """uvicorn without its handlers of SIGINT and SIGTERM, because this process stops in its own order."""

    def __init__(self, config: uvicorn.Config, acceptor_options: AcceptorOptions | None = None) -> None:
        super().__init__(config, acceptor_options)
        self.accepts = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepts.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A server that runs as a task of its owner."""

    def __init__(self, server: HttpServer, listener: socket.socket) -> None:
        self.server = Unsignalled(server.config, server.acceptor_options)
        # `stop` ends earlier and counts what it cuts; uvicorn's own deadline is a safety net behind it.
        server.config.timeout_graceful_shutdown = (server.config.timeout_graceful_shutdown or 0) + 2
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._forced = asyncio.Event()

    async def start(self) -> None:
        """Returns when the server accepts connections."""
        self._task = asyncio.create_task(self.server.serve(sockets=[self._listener]))
        accepts = asyncio.ensure_future(self.server.accepts.wait())
        await asyncio.wait({accepts, self._task}, return_when=asyncio.FIRST_COMPLETED)
        accepts.cancel()
        if self._task.done():
            self._task.result()

    def force(self) -> None:
        """Makes `stop` return without waiting for running requests."""
        self._forced.set()

    async def stop(self, drain_seconds: float) -> int:
        """Closes the listener and lets running requests finish. Returns how many were cancelled after the deadline."""
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
