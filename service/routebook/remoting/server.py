"""RocketMQ's port as a whole: started, drained, stopped.

A drain closes the listener first, so that new connections reach other workers. Connections established until then are
served, even if they have not sent anything. Peers that know GO_AWAY (5.3.2 and newer) get that answer to their
next request; others are served until the drain ends, and then closed. None of this removes a broker, because the
sessions are given up before.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Coroutine
from typing import Any, Final

from routebook.listeners.acceptor import Acceptor, ConnectionLimits
from routebook.listeners.peers import Peers
from routebook.listeners.tls import ServerTls
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.remoting.handlers import handlers_by_code
from routebook.remoting.notifications import Notifications
from routebook.remoting.permissions import Permissions
from routebook.remoting.port import Port
from routebook.settings import LiveSettings

_watermark = logging.getLogger("routebook.watermark")

WATERMARK_AFTER_S: Final = 10.0
WATERMARK_PERIOD_S: Final = 1.0
CLOSE_S: Final = 1.0
"""For waiting requests to be handled, and for the last answers to be sent."""


class RemotingServer:
    def __init__(
        self,
        registry: Registry,
        live: LiveSettings,
        metrics: Metrics,
        tls: ServerTls | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._live = live
        self._peers = Peers() if peers is None else peers
        self._metrics = metrics
        self._tls = tls
        self._registry = registry
        self._notifications = Notifications(live)
        registry.min_broker_changes.listener = self._notifications.notify
        permissions = Permissions(registry, live)
        self.port = Port(registry, live, handlers_by_code(registry, live, permissions), permissions, metrics)
        self._acceptor: Acceptor | None = None
        self._tasks: list[asyncio.Task[None]] = []
        metrics.before_exposition(lambda: metrics.remoting_port(self.port.figures()))

    def sample_next(self) -> None:
        """Makes the port time the next lookup."""
        self.port.lookups.sample_due = True

    def start(self, listener: socket.socket) -> None:
        settings = self._live.current
        self.port.room.begin(time.monotonic())
        self._acceptor = Acceptor(
            listener,
            self.port.new_connection,
            frame_limits=self.port.limits,
            proxy_from=settings.proxy_networks,
            limits=ConnectionLimits(
                max_connections=settings.max_connections,
                silent_seconds=settings.server_channel_max_idle_time_seconds,
                first_bytes_seconds=settings.incomplete_frame_timeout_ms / 1000,
                send_buffer_bytes=settings.server_socket_snd_buf_size,
                receive_buffer_bytes=settings.server_socket_rcv_buf_size,
            ),
            tls=self._tls,
            metrics=self._metrics,
            make_room=self.port.make_room,
            peers=self._peers,
        )
        self._acceptor.start()
        self._spawn("remoting sweep", self.port.sweep())
        self._spawn("remoting watermark", self._log_watermark())

    async def drain(self, seconds: float, forced: asyncio.Event) -> None:
        """Waits until all connections are gone, for `seconds` at most."""
        self._registry.sessions.drain()
        if self._acceptor is None:
            return
        if not self._live.current.enable_shutdown_gracefully:
            self._acceptor.close()
            return
        self.port.is_draining = True
        self._acceptor.stop_listening()
        waits = [asyncio.ensure_future(self._acceptor.wait_empty()), asyncio.ensure_future(forced.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def close(self) -> int:
        """Returns the number of requests that were not handled."""
        for task in self._tasks:
            task.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.port.wait_idle()
        cut = self.port.queue.length
        for connection in tuple(self.port.connections):
            connection.close("this worker is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.port.wait_empty()
        for connection in tuple(self.port.connections):
            connection.abort("it does not read its last answers")
        await self.port.close()
        await self._notifications.close()
        return cut

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _log_watermark(self) -> None:
        """Once a second, as RocketMQ does; at level DEBUG while no request waits."""
        await asyncio.sleep(WATERMARK_AFTER_S)
        while True:
            lookups, others = self.port.lookup_queue, self.port.queue
            _watermark.log(
                logging.INFO if lookups.length or others.length else logging.DEBUG,
                "[WATERMARK] ClientQueueSize:%d ClientQueueSlowTime:%d DefaultQueueSize:%d DefaultQueueSlowTime:%d",
                lookups.length,
                lookups.slow_ms(),
                others.length,
                others.slow_ms(),
            )
            await asyncio.sleep(WATERMARK_PERIOD_S)
