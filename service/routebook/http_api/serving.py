"""The sockets of the HTTP ports: uvicorn, with the deadlines it does not have.

uvicorn bounds only the silence between two requests. Here a connection is also closed when a request (head
and body) is not complete within `request_timeout_ms` of its first byte, when a new connection says nothing
for as long, and when a client does not take its answer for as long.
"""

import asyncio
import socket
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from routebook.http_api import problems
from routebook.http_api.problems import MEDIA_TYPE, Kind, problem_response

KEEP_ALIVE_SECONDS: Final = 5
"""Idle connections between two requests; uvicorn's own default, short because any worker answers anew in a
millisecond.
"""


class DeadlineProtocol(HttpToolsProtocol):
    """One timer a connection, which looks at two time stamps: a request costs two assignments, not a
    timer.
    """

    request_timeout_seconds: float = 10.0
    _unfinished_since: float | None = None
    _stuck_since: float | None = None
    _watchdog: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unfinished_since = self.loop.time()
        self._watchdog = self.loop.call_later(self.request_timeout_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Blank lines between requests begin no message, and would keep a silent connection open for ever.
        if self._unfinished_since is None and self._is_idle:
            self._unfinished_since = self.loop.time()

    def on_message_begin(self) -> None:
        if self._unfinished_since is None:
            self._unfinished_since = self.loop.time()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._unfinished_since = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._send_and_close(problems.BAD_REQUEST, msg)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _may_write(self) -> bool:
        if self.pipeline:
            return False
        # The current cycle is the request that is still arriving, and nobody has begun to answer it.
        return self._is_idle or (self.cycle.more_body and not self.cycle.response_started)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._stuck_since is not None and now - self._stuck_since >= self.request_timeout_seconds:
            self.transport.abort()
            return
        since = self._unfinished_since
        if since is not None and now - since >= self.request_timeout_seconds and not self.flow.read_paused:
            self._give_up_request()
            return
        starts = [stamp for stamp in (since, self._stuck_since) if stamp is not None]
        due = max(min(starts, default=now) + self.request_timeout_seconds, now + 0.05)
        self._watchdog = self.loop.call_at(due, self._look)

    def _give_up_request(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
        detail = f"The request was not complete after {self.request_timeout_seconds:g} s."
        self._send_and_close(problems.TOO_SLOW, detail)

    def _send_and_close(self, kind: Kind, detail: str) -> None:
        """Written past the cycle, so only where no answer can be under way on this connection."""
        if self._may_write:
            response = problem_response(kind, detail)
            head = f"HTTP/1.1 {kind.status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            head += f"content-length: {len(response.body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode("ascii") + bytes(response.body))
        self.transport.close()


class HttpServer(uvicorn.Server):
    """Tells watchers to end before it waits for connections: they would never end by themselves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stop = getattr(self.config.app, "stop", None)
        if stop is not None:
            stop()
        await super().shutdown(sockets)


def http_server(app: ASGIApp, *, request_timeout_ms: int, drain_ms: int, **options: Any) -> HttpServer:
    """A server for either port; `options` are uvicorn's (host, port, fd …). Run it with
    `serve(sockets=…)`.
    """
    deadlines = {"request_timeout_seconds": request_timeout_ms / 1000}
    config = uvicorn.Config(
        app,
        http=type("BoundDeadlineProtocol", (DeadlineProtocol,), deadlines),
        ws="none",
        lifespan="off",
        interface="asgi3",
        # Believing X-Forwarded-For would turn a proxied stranger into a loopback caller.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, drain_ms // 1000),
        **options,
    )
    return HttpServer(config)
