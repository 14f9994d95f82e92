"""Accepts connections, recognizes them by their first bytes, and hands each to its port's protocol.

A PROXY header, TLS and plain frames may come on one port and differ in their first bytes. These are peeked at and stay
in the socket (docs/decisions/0024); only a PROXY header is read, exactly to its end. Then the socket goes to the event
loop, with or without TLS, and from then on nothing of ours stands between the event loop and the protocol.

One task leads a connection from its acceptance until its protocol has it; until then the connection is called pending.

At `max_connections`, connections are closed in this order: those that have been pending for longest, then those that
the port can spare (idle, without sessions), and only then the new connection. So a broker that returns gets a
connection, however many idle ones there are.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import islice
from math import inf
from typing import Any, Final, Self

from routebook.listeners.peers import UNKNOWN, Peer, PeerLimits, Peers
from routebook.listeners.tls import ServerTls
from routebook.observability.metrics import Metrics, Port
from routebook.protocol.frame import FrameLimits, PeerProtocolError
from routebook.protocol.opening import Endpoint, Opened, Opening, ProxyHeader

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """What a port's protocol is made with."""

    peer: str
    """`host:port`, IPv6 in brackets: the source of an accepted PROXY header, otherwise the address of the socket."""
    is_tls: bool
    source: Endpoint | None = None
    """The same in parts. None if a PROXY header named no source, so that the real peer is unknown."""
    balancer: Endpoint | None = None
    """The address that sent an accepted PROXY header. None if there was no header."""
    first_byte_at: float = inf
    """`time.monotonic()` of the first byte, where the deadline of an unfinished first frame begins. With TLS the
    handshake has a deadline of its own, and this is infinity: no frame has begun.
    """
    peer_costs: Peer = field(default_factory=lambda: Peer(UNKNOWN, PeerLimits()), compare=False)
    """What all connections of the same address cost."""

    @property
    def permission_address(self) -> Endpoint | None:
        """Address used for permission checks. None if it is unknown, so that no address gives a permission.

        It is never the balancer's address, which may well be a loopback address. A header from another machine cannot
        name a loopback address either.
        """
        if self.balancer is None or self.source is None:
            return self.source
        if is_loopback(self.source.host) and not is_loopback(self.balancer.host):
            return None
        return self.source


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one port; defaults as in `settings`."""

    max_connections: int = 20_000
    silent_seconds: float = 120.0
    """For a connection that has not sent anything; 0 means no limit. Java clients keep such connections to the name
    servers that they do not use, and reconnect as soon as one is closed, so it is as long as for idle connections.
    """
    first_bytes_seconds: float = 10.0
    """For a PROXY header, a TLS handshake or the first bytes of a frame, once they have begun."""
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0


def connection_info(
    real: Endpoint,
    proxy: ProxyHeader | None,
    *,
    is_tls: bool,
    first_byte_at: float = inf,
    peer_costs: Peer | None = None,
) -> ConnectionInfo:
    """`real` is the address of the socket."""
    costs = peer_costs or Peer(real.host, PeerLimits())
    if is_tls:
        first_byte_at = inf
    if proxy is None:
        return ConnectionInfo(_text(real), is_tls, real, None, first_byte_at, costs)
    return ConnectionInfo(_text(proxy.source or real), is_tls, proxy.source, real, first_byte_at, costs)


def endpoint_of(address: Any) -> Endpoint:
    """Converts the address of a socket. An IPv4 peer of an IPv6 socket gets its IPv4 address."""
    host, port = address[:2]
    plain = _ip(host)
    return Endpoint(str(plain) if plain.version == 4 else host, port)


def is_loopback(host: str) -> bool:
    return _ip(host).is_loopback


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = _ip(host)
    return any(address in network for network in networks)


def _ip(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _text(endpoint: Endpoint) -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"


_log = logging.getLogger(__name__)

FIRST_PEEK_BYTES: Final = 256
LONGEST_PEEK_BYTES: Final = 16 + 0xFFFF + 1
"""The longest PROXY header, and one byte of what follows it."""
RETRY_SECONDS: Final = 0.05
WAKES_ONLY_FOR_MORE: Final = sys.platform == "linux"
"""Whether SO_RCVLOWAT keeps the poll quiet until that many bytes have arrived, or the peer has closed. Other systems
are not relied on to do that: there we peek again after RETRY_SECONDS.
"""
ACCEPTS_AT_ONCE: Final = 16
"""Then this worker's connections get their turn, and the other workers that share the socket."""
LAST_ACCEPTS: Final = 4096
"""Limit of connections that wait when the listener is closed: the longest queue that a kernel keeps by default."""
ROOM_AT_ONCE: Final = 16
SPARED_SECONDS: Final = 1.0
"""A pending connection is not closed within this time, even at the limit: it may be about to send something."""
PAUSE_SECONDS: Final = 0.1
TLS_SHUTDOWN_SECONDS: Final = 5.0
"""For the peer's closing message of TLS."""
OUT_OF_DESCRIPTORS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
WARNING_PERIOD_SECONDS: Final = 60.0


class AcceptedSocket(socket.socket):
    """Calls a function when it ends. Event loops close or detach a socket and notify only its protocol. If protocols
    had to pass that on, one that forgot it would use up the connections of the port.
    """

    _on_end: "Callable[[AcceptedSocket], None] | None" = None
    peer_costs: Peer | None = None
    """Set when the connection is counted at its address."""

    @classmethod
    def take(cls, accepted: socket.socket, on_end: "Callable[[AcceptedSocket], None]") -> Self:
        """`accepted` is empty afterwards. Family and type are given so that the kernel is not asked again."""
        taken = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        taken._on_end = on_end
        taken.setblocking(False)
        return taken

    def detach(self) -> int:
        """uvloop's transports end with this call, asyncio's own with `close`."""
        self._end()
        return super().detach()

    def close(self) -> None:
        self._end()
        super().close()

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self)


class RepeatedWarning:
    """A warning that may be due a thousand times a second, and is logged once a minute with its number."""

    def __init__(self, text: str) -> None:
        """`text` ends with a full stop; the number is appended."""
        self._text = text
        self._logged_at = -inf
        self._count = 0

    def log(self, *values: object) -> None:
        self._count += 1
        now = time.monotonic()
        if now - self._logged_at < WARNING_PERIOD_SECONDS:
            return
        times = "" if self._count == 1 else f" ({self._count} times since the last such warning)"
        _log.warning(self._text + "%s", *values, times)
        self._logged_at, self._count = now, 0


class _Refusal(Exception):  # noqa: N818 not an error: the connection is not wanted
    """A pending connection is closed. `reason` is a label of the metric; empty if the peer has gone by itself."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Acceptor:
    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[ConnectionInfo], asyncio.Protocol],
        *,
        port: Port = "remoting",
        frame_limits: FrameLimits | None = FrameLimits(),  # noqa: B008 a tuple
        proxy_from: tuple[Network, ...] = (),
        limits: ConnectionLimits = ConnectionLimits(),
        tls: ServerTls | None = None,
        metrics: Metrics | None = None,
        make_room: Callable[[str | None], int] = lambda _host: 0,
        peers: Peers | None = None,
        too_slow_answer: bytes = b"",
        address_full_answer: bytes = b"",
    ) -> None:
        """Without `frame_limits` the port speaks HTTP; without `tls`, TLS is refused. `make_room` closes some
        connections that can be spared, for one from the host that it is given (None: unknown), and returns their
        number; it must not look at all connections each time.
        `too_slow_answer` is sent to a connection that sent nothing, or not enough, in time, `address_full_answer` to
        one whose address has too many.
        """
        self._listener = listener
        self._make_protocol = make_protocol
        self._port = port
        self._frame_limits = frame_limits
        self._proxy_from = proxy_from
        self._limits = limits
        self._tls = tls
        self._metrics = metrics or Metrics()
        self._make_room = make_room
        self._peers = Peers() if peers is None else peers
        self._answers = {"silent": too_slow_answer, "slow": too_slow_answer, "address": address_full_answer}
        """What is sent before a connection is closed, by the reason."""
        self._open = 0
        self._pending: dict[asyncio.Task[None], float] = {}
        """With the time of acceptance, oldest first."""
        self._cancelled = 0
        """Pending connections that were cancelled and end with the loop's next turn: they are no longer counted."""
        self._pause: asyncio.TimerHandle | None = None
        self._has_stopped = False
        self._no_connections = asyncio.Event()
        self._fewer_pending = asyncio.Event()
        self._reserve: int | None = None
        """A file descriptor to give up, so that connections can be closed when there is none left."""
        self._limit_reached = RepeatedWarning(
            f"The {port} port has %d connections (max_connections): silent ones and unfinished handshakes are closed."
        )
        self._full = RepeatedWarning(
            f"The {port} port has %d connections (max_connections): new connections are closed."
        )
        self._address_full = RepeatedWarning(
            f"%s has %d connections, the limit of an address (max_connections_per_address): its new connections to "
            f"the {port} port are closed."
        )
        self._no_descriptors = RepeatedWarning(
            f"The {port} port cannot accept connections (%s): new connections are closed, idle ones too. "
            "Raise the limit of open files (ulimit -n)."
        )
        self._cannot_accept = RepeatedWarning(f"The {port} port cannot accept connections: %s.")
        self._no_certificate = RepeatedWarning(f"A TLS connection to the {port} port was closed: %s.")

    @property
    def open_connections(self) -> int:
        """Including pending ones."""
        return self._open

    def start(self) -> None:
        # Connections inherit the sizes from the listener; TCP fixes its window scale before a connection is accepted.
        for option, size in (
            (socket.SO_SNDBUF, self._limits.send_buffer_bytes),
            (socket.SO_RCVBUF, self._limits.receive_buffer_bytes),
        ):
            if size > 0:
                self._listener.setsockopt(socket.SOL_SOCKET, option, size)
        self._listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._reserve = _open_reserve()
        self._resume_accepting()

    def stop_listening(self) -> None:
        """Accepts what the kernel has already connected, and closes the listener. Behind a balancer each of these
        connections may carry a request, which would be lost.
        """
        if self._has_stopped:
            return
        self._stop_accepting()
        for _ in range(LAST_ACCEPTS):
            if not self._accept_one():
                break
        self._listener.close()

    def close(self) -> None:
        """Closes the listener and all pending connections. `wait_closed` waits for their end."""
        if not self._has_stopped:
            self._stop_accepting()
            self._listener.close()
        for task in self._pending:
            self._cancel(task)
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    async def wait_empty(self) -> None:
        """Until no connection is left, pending or not."""
        while self._open:
            self._no_connections.clear()
            await self._no_connections.wait()

    async def wait_decided(self) -> None:
        """Until no connection is pending."""
        while self._pending:
            self._fewer_pending.clear()
            await self._fewer_pending.wait()

    async def wait_closed(self) -> None:
        """The end of `close`. Connections that have a protocol are the protocol's business."""
        if self._pending:
            await asyncio.wait(list(self._pending))

    # -- accepting

    def _resume_accepting(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _pause_accepting(self) -> None:
        if not self._has_stopped:
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume_accepting)

    def _stop_accepting(self) -> None:
        self._has_stopped = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if self._has_stopped or not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Whether there may be another connection to accept."""
        try:
            accepted, address = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            # The peer closed it before it was accepted.
            return True
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                self._shed(error)
            else:
                self._cannot_accept.log(error.strerror)
            # A level-triggered poll would report the same error again and again.
            self._pause_accepting()
            return False
        if self._open - self._cancelled >= self._limits.max_connections and not self._find_room(address):
            accepted.close()
            self._full.log(self._open)
            self._metrics.connection_refused(self._port, "full")
        else:
            self._count(1)
            sock = AcceptedSocket.take(accepted, self._end_connection)
            task = self._loop.create_task(self._admit(sock, endpoint_of(address)))
            self._pending[task] = self._loop.time()
            task.add_done_callback(partial(self._end_pending, sock))
        return True

    def _count(self, change: int) -> None:
        self._open += change
        if not self._open:
            self._no_connections.set()
        self._metrics.connections(self._port, self._open)

    def _end_connection(self, sock: AcceptedSocket) -> None:
        if sock.peer_costs is not None:
            self._peers.disconnect(sock.peer_costs)
        self._count(-1)

    def _find_room(self, address: Any = None) -> bool:
        """`address`: where the new connection comes from."""
        latest = self._loop.time() - SPARED_SECONDS
        oldest = list(islice(self._pending.items(), self._cancelled + ROOM_AT_ONCE))
        spared = [task for task, since in oldest if since <= latest and not task.cancelling()]
        for task in spared:
            self._cancel(task)
            self._metrics.connection_refused(self._port, "spared")
        if spared:
            self._limit_reached.log(self._open)
        if spared:
            return True
        host = endpoint_of(address).host if address is not None else None
        return self._make_room(None if host is None or is_within(host, self._proxy_from) else host) > 0

    def _shed(self, error: OSError) -> None:
        """Accepts and closes the waiting connections by means of a reserved descriptor, so that their peers do not wait
        in vain.
        """
        self._no_descriptors.log(error.strerror)
        self._find_room()
        for _ in range(ACCEPTS_AT_ONCE):
            if self._reserve is None:
                break
            os.close(self._reserve)
            try:
                self._listener.accept()[0].close()
            except OSError:
                break
            finally:
                self._reserve = _open_reserve()
            self._metrics.connection_refused(self._port, "descriptors")
        if self._reserve is None:
            self._reserve = _open_reserve()

    # -- pending connections

    async def _admit(self, sock: AcceptedSocket, real: Endpoint) -> None:
        """Ends when the protocol has the connection, or when the connection is closed."""
        peer = real.host
        try:
            accepts_proxy = is_within(real.host, self._proxy_from)
            if not accepts_proxy:
                self._count_at_address(sock, real.host)
            opened, first_byte_at = await self._peek_beginning(sock, accepts_proxy=accepts_proxy)
            if accepts_proxy:
                source = opened.proxy.source if opened.proxy is not None else None
                self._count_at_address(sock, (source or real).host)
            context = await self._context_for(opened)
            info = connection_info(
                real, opened.proxy, is_tls=opened.is_tls, first_byte_at=first_byte_at, peer_costs=sock.peer_costs
            )
            peer = info.peer
            await self._hand_over(sock, info, context)
        except _Refusal as refusal:
            if answer := self._answers.get(refusal.reason):
                with contextlib.suppress(OSError):
                    sock.send(answer)
            if refusal.reason:
                self._metrics.connection_refused(self._port, refusal.reason)
            sock.close()
        except Exception:
            _log.exception("A connection of %s could not be taken up.", peer)
            sock.close()

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if not task.cancelling():
            task.cancel()
            self._cancelled += 1

    def _end_pending(self, sock: AcceptedSocket, task: asyncio.Task[None]) -> None:
        del self._pending[task]
        self._fewer_pending.set()
        self._cancelled -= bool(task.cancelling())
        if task.cancelled():
            # Perhaps before it had begun, so that only this can close the socket.
            sock.close()

    def _count_at_address(self, sock: AcceptedSocket, host: str) -> None:
        peer = self._peers.get(host)
        if not self._peers.connect(peer):
            self._address_full.log(peer.host, peer.connections)
            raise _Refusal("address")
        sock.peer_costs = peer

    async def _peek_beginning(self, sock: AcceptedSocket, *, accepts_proxy: bool) -> tuple[Opened, float]:
        """What the first bytes say, and when the first one was seen. Usually they have arrived with the connection."""
        opening = Opening(self._frame_limits, accepts_proxy=accepts_proxy)
        seen, first_byte_at, low_water_mark = 0, inf, 1
        deadline = self._loop.time() + (self._limits.silent_seconds or inf)
        while True:
            data = _peek(sock)
            if data is not None and len(data) > seen:
                if not seen:
                    first_byte_at = time.monotonic()
                    deadline = self._loop.time() + self._limits.first_bytes_seconds
                new, seen = data[seen:], len(data)
                try:
                    opened = opening.receive(new)
                except PeerProtocolError as error:
                    raise _Refusal(error.violation.name.lower()) from None
                if opened is not None:
                    break
            elif data is not None:
                if not data or WAKES_ONLY_FOR_MORE:
                    raise _Refusal
                await asyncio.sleep(RETRY_SECONDS)
            # Else a level-triggered poll would report the bytes that were seen again and again. And a peer that sends
            # single bytes costs nothing until they decide something.
            if low_water_mark != seen + opening.missing_bytes:
                low_water_mark = seen + opening.missing_bytes
                _set_low_water_mark(sock, low_water_mark)
            if not await self._is_readable_before(deadline, sock):
                raise _Refusal("slow" if seen else "silent")
        if low_water_mark != 1:
            _set_low_water_mark(sock, 1)
        if opened.proxy is not None:
            sock.recv(seen - len(opened.rest))
        return opened, first_byte_at

    async def _is_readable_before(self, deadline: float, sock: AcceptedSocket) -> bool:
        result: asyncio.Future[bool] = self._loop.create_future()
        self._loop.add_reader(sock, _set_result, result, True)
        timer = self._loop.call_at(deadline, _set_result, result, False) if deadline < inf else None
        try:
            return await result
        finally:
            self._loop.remove_reader(sock)
            if timer is not None:
                timer.cancel()

    async def _context_for(self, opened: Opened) -> ssl.SSLContext | None:
        tls = self._tls
        if not opened.is_tls:
            if tls is not None and not tls.takes_plain:
                raise _Refusal("plain")
            return None
        if tls is None or not tls.takes_tls:
            raise _Refusal("tls")
        context = await tls.context()
        if context is None:
            self._no_certificate.log(tls.problem)
            raise _Refusal("tls_unavailable")
        return context

    async def _hand_over(self, sock: AcceptedSocket, info: ConnectionInfo, context: ssl.SSLContext | None) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(info),
                sock,
                ssl=context,
                ssl_handshake_timeout=self._limits.first_bytes_seconds if context else None,
                ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS if context else None,
            )
        except OSError as error:
            # The peer's doing: its handshake failed, or it closed the connection during the handshake.
            if context is not None:
                self._metrics.tls_handshake_failed(self._port)
                _log.debug("The TLS handshake of %s failed: %s", info.peer, error)
            raise _Refusal from None


def _peek(sock: socket.socket) -> bytes | None:
    """None: no byte has arrived yet. Empty: the peer has closed the connection, or it is broken."""
    try:
        data = sock.recv(FIRST_PEEK_BYTES, socket.MSG_PEEK)
        if len(data) == FIRST_PEEK_BYTES:
            data = sock.recv(LONGEST_PEEK_BYTES, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
    return data


def _set_result(result: "asyncio.Future[bool]", value: bool) -> None:
    if not result.done():
        result.set_result(value)


def _set_low_water_mark(sock: socket.socket, count: int) -> None:
    """The socket becomes readable when `count` bytes have arrived."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
