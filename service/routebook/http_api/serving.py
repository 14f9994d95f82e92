"""The sockets of the HTTP ports: uvicorn, with the deadlines it does not have, and behind an acceptor where the port is
open to others: it brings bounds, PROXY headers and TLS.

uvicorn bounds only the silence between two requests. Here a connection is also closed when a request (head
and body) is not complete within `request_timeout_ms` of its first byte, when a new connection says nothing
for as long, and when a client does not take its answer for as long.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from routebook.http_api import problems
from routebook.http_api.problems import MEDIA_TYPE, Kind, problem_response
from routebook.listeners.acceptor import Acceptor, NoTls, Tls
from routebook.listeners.arrival import Arrival, Bounds, Network
from routebook.observability.metrics import Metrics

KEEP_ALIVE_SECONDS: Final = 5
"""Idle connections between two requests; uvicorn's own default, short because any worker answers anew in a
millisecond.
"""

GOODBYE_SECONDS: Final = 0.2
NEWCOMERS_SECONDS: Final = 1.0
"""At a stop, for those who are connected and whose first bytes are under way."""


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before a port that others reach."""

    tls: Tls = field(default_factory=NoTls)
    proxy_from: tuple[Network, ...] = ()
    max_connections: int = 20_000
    metrics: Metrics | None = None


class DeadlineProtocol(HttpToolsProtocol):
    """One timer a connection, which looks at two time stamps: a request costs two assignments, not a
    timer.
    """

    request_timeout_seconds: float = 10.0
    arrival: Arrival | None = None
    _unfinished_since: float | None = None
    _stuck_since: float | None = None
    _watchdog: asyncio.TimerHandle | None = None
    _has_heard = False
    _ends_after_first = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.arrival is not None and self.arrival.balancer is not None:
            self.client = _client_of(self.arrival)
        self._unfinished_since = self.loop.time()
        self._watchdog = self.loop.call_later(self.request_timeout_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        super().data_received(data)
        # Blank lines between requests begin no message, and would keep a silent connection open for ever.
        if self._unfinished_since is None and self._is_idle:
            self._unfinished_since = self.loop.time()

    def on_message_begin(self) -> None:
        if self._unfinished_since is None:
            self._unfinished_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._ends_after_first:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._unfinished_since = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        if not self._has_heard and self.arrival is not None and not self.arrival.is_tls:
            # It has been handed over because it has begun to speak, and we are about to hear it.
            self._ends_after_first = True
            return
        is_quiet = self._is_idle and not self.transport.get_write_buffer_size()
        super().shutdown()
        if is_quiet:
            # Many a client that is idle does not answer a goodbye of TLS, and a stop would wait for it.
            self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

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
        self._send_and_close(problems.TOO_SLOW, _too_slow(self.request_timeout_seconds))

    def _send_and_close(self, kind: Kind, detail: str) -> None:
        """Written past the cycle, so only where no answer can be under way on this connection."""
        if self._may_write:
            self.transport.write(_last_words(kind, detail))
        self.transport.close()


def _last_words(kind: Kind, detail: str) -> bytes:
    response = problem_response(kind, detail)
    head = f"HTTP/1.1 {kind.status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
    head += f"content-length: {len(response.body)}\r\nconnection: close\r\n\r\n"
    return head.encode("ascii") + bytes(response.body)


def _too_slow(seconds: float) -> str:
    return f"The request was not complete after {seconds:g} s."


def _client_of(arrival: Arrival) -> tuple[str, int] | None:
    """As the application shall see whoever comes through a balancer: never as the balancer."""
    if arrival.judged_as is not None:
        return arrival.judged_as
    # No address, on purpose: nothing that is asked of an address is true of it.
    return (f"proxied-by-{arrival.balancer.host}", arrival.balancer.port) if arrival.balancer else None


class HttpServer(uvicorn.Server):
    """Tells watchers to end before it waits for connections: they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, front: Front | None = None) -> None:
        super().__init__(config)
        self.front = front
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.front is None or sockets is None:
            await super().startup(sockets)
            return
        self._acceptors = [self._acceptor(listener, self.front) for listener in sockets]
        for acceptor in self._acceptors:
            acceptor.start()
        # They are closed and waited for like servers of the event loop.
        self.servers = self._acceptors  # type: ignore[assignment]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stop = getattr(self.config.app, "stop", None)
        if stop is not None:
            stop()
        for acceptor in self._acceptors:
            acceptor.stop_listening()
        waits = [asyncio.ensure_future(acceptor.wait_decided()) for acceptor in self._acceptors]
        if waits:
            await asyncio.wait(waits, timeout=NEWCOMERS_SECONDS)
        for wait in waits:
            wait.cancel()
        await super().shutdown(sockets)

    @property
    def _protocol_class(self) -> type[DeadlineProtocol]:
        return cast("type[DeadlineProtocol]", self.config.http_protocol_class)

    def _acceptor(self, listener: socket.socket, front: Front) -> Acceptor:
        seconds = self._protocol_class.request_timeout_seconds
        return Acceptor(
            listener,
            self._protocol,
            port="http",
            frame_limits=None,
            proxy_from=front.proxy_from,
            bounds=Bounds(front.max_connections, silent_seconds=seconds, first_bytes_seconds=seconds),
            tls=front.tls,
            metrics=front.metrics,
            farewell=_last_words(problems.TOO_SLOW, _too_slow(seconds)),
        )

    def _protocol(self, arrival: Arrival) -> DeadlineProtocol:
        made = self._protocol_class(self.config, self.server_state, self.lifespan.state)
        made.arrival = arrival
        return made


def http_server(
    app: ASGIApp, *, request_timeout_ms: int, drain_ms: int, front: Front | None = None, **options: Any
) -> HttpServer:
    """A server for either port; `options` are uvicorn's (host, port, fd …). Run it with
    `serve(sockets=…)`. Without a front it is one for this machine alone.
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
    return HttpServer(config, front)
