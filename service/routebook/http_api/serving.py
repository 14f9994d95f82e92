"""The sockets of the HTTP ports: uvicorn, with the deadlines that it lacks. An `Acceptor` supplies the connections of a
port that is open to other machines; it adds connection limits, PROXY headers and TLS.

uvicorn limits only the idle time between two requests. Here a connection is also closed when a request (head and body)
is not complete within `request_timeout_ms` of its first byte, when a new connection sends nothing for that time, and
when a client does not read its response for that time.
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from routebook.http_api import problems
from routebook.http_api.callers import CERTIFICATE_NAMES
from routebook.http_api.problems import MEDIA_TYPE, Kind, problem_response
from routebook.listeners.acceptor import Acceptor, ConnectionInfo, ConnectionLimits, Network
from routebook.listeners.peers import Peers
from routebook.listeners.tls import ServerTls, certificate_names
from routebook.observability.metrics import Metrics

KEEP_ALIVE_SECONDS: Final = 5
"""Idle time between two requests: uvicorn's default. It can be short because a new connection costs a millisecond."""

TLS_CLOSE_SECONDS: Final = 0.2
"""At a stop, how long an idle client may take to answer the closing message of TLS."""

UNCLASSIFIED_SECONDS: Final = 1.0
"""At a stop, how long the acceptor waits for the first bytes of connections that are open already."""


ADDRESS_FULL: Final = "This address has as many connections as max_connections_per_address allows."


@dataclass(frozen=True, slots=True)
class AcceptorOptions:
    """Options for the acceptor of a port that other machines can reach."""

    tls: ServerTls | None = None
    proxy_from: tuple[Network, ...] = ()
    max_connections: int = 20_000
    metrics: Metrics | None = None
    peers: Peers | None = None


@dataclass(frozen=True, slots=True)
class HeaderLimits:
    """Limits of the head of a request (request line and headers), and of trailers; defaults as in `settings`."""

    total_bytes: int = 65_536
    line_bytes: int = 16_384
    count: int = 100


MAX_UNFINISHED_HEAD_BYTES: Final = 32 * 1024 * 1024
"""For all connections of a port together. Usual heads arrive in one piece and never count."""


class UnfinishedHeads:
    """The bytes that all connections of a port have received of heads that are not complete."""

    def __init__(self) -> None:
        self.bytes = 0


class DeadlineProtocol(HttpToolsProtocol):
    """Adds deadlines and the limits of headers to uvicorn's protocol.

    One timer per connection compares two timestamps. So a request costs two assignments, not a timer.

    The parser copies an incomplete header with each piece that arrives, so the cost of an endless header would grow
    with the square of its length. It is refused as soon as it has more bytes than a complete header may have.
    """

    request_timeout_seconds: float = 10.0
    header_limits: HeaderLimits = HeaderLimits()
    unfinished_heads: UnfinishedHeads = UnfinishedHeads()
    _refusal: tuple[Kind, str] | None = None
    _in_head = False
    _begins = 0
    """Messages that began in the current piece of data."""
    _head_bytes = 0
    """Received for a head that is not complete."""
    _parsed_bytes = 0
    """Size of the parsed part of the request line and headers, or of the trailers."""
    _unparsed_bytes = 0
    """Received after the head without any part of the body, such as a trailer or the extension of a chunk."""
    _trailers = 0
    connection_info: ConnectionInfo | None = None
    _request_start: float | None = None
    _write_blocked_since: float | None = None
    _timer: asyncio.TimerHandle | None = None
    _has_received = False
    _closes_after_response = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_PairedWrites(transport))
        if names := certificate_names(transport.get_extra_info("peercert")):
            self.app_state = {**self.app_state, CERTIFICATE_NAMES: names}
        if self.connection_info is not None and self.connection_info.balancer is not None:
            self.client = _client_of(self.connection_info)
        self._request_start = self.loop.time()
        self._timer = self.loop.call_later(self.request_timeout_seconds, self._check_deadlines)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._count_unfinished_head(0)
        super().connection_lost(exc)
        # Nothing refers to the protocol any more, so that what it holds is released now.
        self.pipeline.clear()
        if self.cycle is not None:
            self.cycle.on_response = _nothing

    def data_received(self, data: bytes) -> None:
        self._has_received = True
        was_in_head, self._begins = self._in_head, 0
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._in_head or was_in_head:
            self._check_unfinished_head(len(data))
        elif self._unparsed_bytes > self.header_limits.total_bytes:
            self._refuse_head(f"more than {self.header_limits.total_bytes} bytes after the headers are no body")
            self._give_up_head()
        # Blank lines between requests begin no message, and would keep an idle connection open.
        if self._request_start is None and self._is_idle:
            self._request_start = self.loop.time()

    def on_message_begin(self) -> None:
        if self._request_start is None:
            self._request_start = self.loop.time()
        self._in_head = True
        self._begins += 1
        self._parsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_parsed(len(url), len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
            count = len(self.headers)
        else:
            # uvicorn would add a trailer to the headers of the request. Nothing here uses trailers.
            self._trailers += 1
            count = self._trailers
        if count > self.header_limits.count:
            self._refuse_head(f"more than {self.header_limits.count} headers (max_http_header_count)")
            raise _HeadTooLargeError
        self._check_parsed(len(name) + len(value), len(name) + len(value))

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._unparsed_bytes = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        self._parsed_bytes = self._unparsed_bytes = self._trailers = 0
        if self._closes_after_response:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._request_start = None
        self._unparsed_bytes = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._write_blocked_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_blocked_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        if not self._has_received and self.connection_info is not None and not self.connection_info.is_tls:
            # The acceptor saw the first bytes of a request; they are about to arrive here.
            self._closes_after_response = True
            return
        is_idle = self._is_idle and not self.transport.get_write_buffer_size()
        super().shutdown()
        if is_idle:
            # Many idle clients do not answer the closing message of TLS, and the stop would wait for them.
            self.loop.call_later(TLS_CLOSE_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self._send_and_close(*(self._refusal or (problems.BAD_REQUEST, msg)))

    def _check_parsed(self, size: int, line_bytes: int) -> None:
        self._parsed_bytes += size
        limits = self.header_limits
        if line_bytes > limits.line_bytes:
            self._refuse_head(f"a line of more than {limits.line_bytes} bytes (max_http_header_line_bytes)")
        elif self._parsed_bytes > limits.total_bytes:
            self._refuse_head(f"more than {limits.total_bytes} bytes (max_http_header_bytes)")
        if self._refusal is not None:
            raise _HeadTooLargeError

    def _check_unfinished_head(self, received: int) -> None:
        if not self._in_head:
            self._count_unfinished_head(0)
            return
        # After other messages in the same piece, it is unknown how much of it belongs to this head.
        self._count_unfinished_head(self._parsed_bytes if self._begins > 1 else self._head_bytes + received)
        if self._head_bytes > self.header_limits.total_bytes:
            self._refuse_head(f"more than {self.header_limits.total_bytes} bytes (max_http_header_bytes)")
            self._give_up_head()
        elif self.unfinished_heads.bytes > MAX_UNFINISHED_HEAD_BYTES:
            self._refusal = (problems.BUSY, "Too many requests with incomplete headers are open at the same time.")
            self._give_up_head()

    def _count_unfinished_head(self, size: int) -> None:
        self.unfinished_heads.bytes += size - self._head_bytes
        self._head_bytes = size

    def _refuse_head(self, what: str) -> None:
        self._refusal = (problems.HEADERS_TOO_LARGE, f"The request has {what}.")

    def _give_up_head(self) -> None:
        if not self.transport.is_closing() and self._refusal is not None:
            self._send_and_close(*self._refusal)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _may_write(self) -> bool:
        if self.pipeline:
            return False
        # The current cycle is the request that is still arriving, and its response has not started.
        return self._is_idle or (self.cycle.more_body and not self.cycle.response_started)

    def _check_deadlines(self) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._write_blocked_since is not None and now - self._write_blocked_since >= self.request_timeout_seconds:
            self.transport.abort()
            return
        since = self._request_start
        if since is not None and now - since >= self.request_timeout_seconds and not self.flow.read_paused:
            self._give_up_request()
            return
        starts = [stamp for stamp in (since, self._write_blocked_since) if stamp is not None]
        due = max(min(starts, default=now) + self.request_timeout_seconds, now + 0.05)
        self._timer = self.loop.call_at(due, self._check_deadlines)

    def _give_up_request(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
        self._send_and_close(problems.TOO_SLOW, _too_slow(self.request_timeout_seconds))

    def _send_and_close(self, kind: Kind, detail: str) -> None:
        """Writes directly to the transport, so only while no response is being sent on this connection."""
        if self._may_write:
            self.transport.write(_closing_response(kind, detail))
        self.transport.close()


class _PairedWrites(asyncio.Transport):
    """Sends two writes with one system call, if the second follows before the event loop turns.

    uvicorn writes the head of a response and its body one by one. A worker that was killed in between would leave half
    a response, which a balancer cannot take back to ask another worker.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._first = b""
        self._flush: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._flush is None:
            self._first = bytes(data)
            self._flush = self._loop.call_soon(self._send_first)
        else:
            self._send_first(data)

    def _send_first(self, second: bytes | bytearray | memoryview = b"") -> None:
        if self._flush is None:
            return
        self._flush.cancel()
        self._flush = None
        first, self._first = self._first, b""
        # uvicorn closes a connection whose next request is malformed, and does not tell the one in progress.
        if not self._transport.is_closing():
            self._transport.write(first + second)

    def close(self) -> None:
        self._send_first()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return len(self._first) + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class _HeadTooLargeError(Exception):
    """Raised in a callback of the parser, which stops and reports an invalid request."""


def _nothing() -> None:
    pass


def _closing_response(kind: Kind, detail: str) -> bytes:
    response = problem_response(kind, detail)
    head = f"HTTP/1.1 {kind.status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
    head += f"content-length: {len(response.body)}\r\nconnection: close\r\n\r\n"
    return head.encode("ascii") + bytes(response.body)


def _too_slow(seconds: float) -> str:
    return f"The request was not complete after {seconds:g} s."


def _client_of(info: ConnectionInfo) -> tuple[str, int] | None:
    """The client address for a connection through a load balancer. It is never the balancer's address."""
    if info.permission_address is not None:
        return info.permission_address
    # Deliberately not an address, so that no rule for addresses (such as loopback) applies.
    return (f"proxied-by-{info.balancer.host}", info.balancer.port) if info.balancer else None


class HttpServer(uvicorn.Server):
    """Ends the watches before it waits for open connections, since they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, acceptor_options: AcceptorOptions | None = None) -> None:
        super().__init__(config)
        self.acceptor_options = acceptor_options
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.acceptor_options is None or sockets is None:
            await super().startup(sockets)
            return
        self._acceptors = [self._acceptor(listener, self.acceptor_options) for listener in sockets]
        for acceptor in self._acceptors:
            acceptor.start()
        # uvicorn closes them and waits for them like servers of the event loop.
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
            await asyncio.wait(waits, timeout=UNCLASSIFIED_SECONDS)
        for wait in waits:
            wait.cancel()
        await super().shutdown(sockets)

    @property
    def _protocol_class(self) -> type[DeadlineProtocol]:
        return cast("type[DeadlineProtocol]", self.config.http_protocol_class)

    def _acceptor(self, listener: socket.socket, acceptor_options: AcceptorOptions) -> Acceptor:
        seconds = self._protocol_class.request_timeout_seconds
        return Acceptor(
            listener,
            self._protocol,
            port="http",
            frame_limits=None,
            proxy_from=acceptor_options.proxy_from,
            limits=ConnectionLimits(
                acceptor_options.max_connections, silent_seconds=seconds, first_bytes_seconds=seconds
            ),
            tls=acceptor_options.tls,
            metrics=acceptor_options.metrics,
            peers=acceptor_options.peers,
            too_slow_answer=_closing_response(problems.TOO_SLOW, _too_slow(seconds)),
            address_full_answer=_closing_response(problems.BUSY, ADDRESS_FULL),
        )

    def _protocol(self, info: ConnectionInfo) -> DeadlineProtocol:
        protocol = self._protocol_class(self.config, self.server_state, self.lifespan.state)
        protocol.connection_info = info
        return protocol


def http_server(
    app: ASGIApp,
    *,
    request_timeout_ms: int,
    drain_ms: int,
    header_limits: HeaderLimits = HeaderLimits(),
    acceptor_options: AcceptorOptions | None = None,
    **options: Any,
) -> HttpServer:
    """A server for either HTTP port. `options` are uvicorn's (host, port, fd …). Run it with
    `serve(sockets=…)`. Without `acceptor_options` it is meant for this machine only.
    """
    bounds = {
        "request_timeout_seconds": request_timeout_ms / 1000,
        "header_limits": header_limits,
        "unfinished_heads": UnfinishedHeads(),
    }
    config = uvicorn.Config(
        app,
        http=type("BoundDeadlineProtocol", (DeadlineProtocol,), bounds),
        ws="none",
        lifespan="off",
        interface="asgi3",
        # With X-Forwarded-For, any client behind a proxy could claim to be a loopback caller.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, drain_ms // 1000),
        **options,
    )
    return HttpServer(config, acceptor_options)
