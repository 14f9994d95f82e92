"""A connection's socket that says when it is given up, by whomever.

Transports own the socket they are given and tell only their protocol of its end. Counting there would ask every
protocol to remember it; a slot that is never returned would in the end close the port.

What would be said a thousand times a second is said once a minute, with its number.

A connection of which it is not known yet what it brings.

Its first bytes are looked at and left in the socket (why: docs/decisions/0024); only a PROXY header, which is for us
alone, is taken out of it, to the byte.

Takes connections from a listening socket that several workers share, and hands each to its port's protocol.

Between the two lie only the first bytes: whom a PROXY header names, and whether it is TLS. After that a connection
belongs to the event loop and its protocol; nothing of ours stands in between.

The bound of connections is kept so that whoever matters keeps a place: at the bound the longest silent ones go first
(unfinished handshakes are such), then those that the port can do without (`make_room`: idle, without sessions), and
only when there is none of either the newcomer. So a broker that comes back is let in, however many idle connections
there are.
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
from itertools import islice
from math import inf
from typing import Protocol, Self

from routebook.listeners.arrival import Arrival, Bounds, Network, arrival_of, endpoint_of, is_within
from routebook.observability.metrics import Metrics, Port
from routebook.protocol.frame import FrameLimits, PeerProtocolError
from routebook.protocol.opening import Endpoint, Opened, Opening


class OpenSocket(socket.socket):
    _on_end: Callable[[], None] | None = None

    @classmethod
    def taking(cls, accepted: socket.socket, on_end: Callable[[], None]) -> Self:
        """`accepted` is empty afterwards. Family and kind are named so that the kernel is not asked again."""
        taken = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        taken._on_end = on_end
        taken.setblocking(False)
        return taken

    def detach(self) -> int:
        """How uvloop's transports let go; asyncio's own close."""
        self._ended()
        return super().detach()

    def close(self) -> None:
        self._ended()
        super().close()

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()


EVERY_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Notice:
    def __init__(self, text: str) -> None:
        """`text` ends in a sentence for people; how often it happened is added."""
        self._text = text
        self._said_at = float("-inf")
        self._since = 0

    def say(self, *values: object) -> None:
        self._since += 1
        now = time.monotonic()
        if now - self._said_at < EVERY_SECONDS:
            return
        times = "" if self._since == 1 else f" ({self._since} times since it was last said)"
        _log.warning(self._text + "%s", *values, times)
        self._said_at, self._since = now, 0


FIRST_LOOK_BYTES = 256
LONGEST_LOOK_BYTES = 16 + 0xFFFF + 1
"""The longest PROXY header, and one byte of what follows it."""
RETRY_SECONDS = 0.05
WAKES_ONLY_FOR_MORE = sys.platform == "linux"
"""Where SO_RCVLOWAT keeps the poll quiet until there is more than was looked at, or an end. Elsewhere that is not
relied upon: a look that shows nothing new is repeated by timer."""


class Undecided:
    """Lives until `on_opened` or `on_given_up` was called, one of them once."""

    __slots__ = (
        "_bounds",
        "_look_bytes",
        "_loop",
        "_on_given_up",
        "_on_opened",
        "_opening",
        "_seen",
        "_timer",
        "_waits",
        "_wakes_at",
        "began",
        "real",
        "since",
        "sock",
    )

    def __init__(
        self,
        sock: OpenSocket,
        real: Endpoint,
        opening: Opening,
        bounds: Bounds,
        *,
        on_opened: Callable[["Undecided", Opened], None],
        on_given_up: Callable[["Undecided", str], None],
    ) -> None:
        self.sock = sock
        self.real = real
        self._opening = opening
        self._bounds = bounds
        self._on_opened = on_opened
        self._on_given_up = on_given_up
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self.began = inf
        self._seen = 0
        self._look_bytes = FIRST_LOOK_BYTES
        self._wakes_at = 1
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Usually the peer's bytes came with it, and this is all there is to do."""
        if self._bounds.silent_seconds:
            self._timer = self._loop.call_later(self._bounds.silent_seconds, self.give_up, "silent")
        self._look()

    def give_up(self, reason: str) -> None:
        self._let_go()
        self._on_given_up(self, reason)

    def _look(self) -> None:
        try:
            data = self._peek()
        except (BlockingIOError, InterruptedError):
            self._wait()
            return
        except OSError:
            self.give_up("gone")
            return
        if len(data) > self._seen:
            self._see(data)
        elif not data or WAKES_ONLY_FOR_MORE:
            self.give_up("gone")
        else:
            self._loop.remove_reader(self.sock)
            self._waits = False
            self._loop.call_later(RETRY_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self.sock.fileno() >= 0:
            self._look()

    def _peek(self) -> bytes:
        data = self.sock.recv(self._look_bytes, socket.MSG_PEEK)
        if len(data) == self._look_bytes < LONGEST_LOOK_BYTES:
            self._look_bytes = LONGEST_LOOK_BYTES
            data = self.sock.recv(self._look_bytes, socket.MSG_PEEK)
        return data

    def _see(self, data: bytes) -> None:
        if not self._seen:
            self.began = time.monotonic()
            self._must_hurry()
        new, self._seen = data[self._seen :], len(data)
        try:
            opened = self._opening.receive(new)
        except PeerProtocolError as error:
            self.give_up(error.violation.name.lower())
            return
        if opened is None:
            self._wait()
            return
        self._let_go()
        if opened.proxy is not None:
            self.sock.recv(self._seen - len(opened.rest))
        self._on_opened(self, opened)

    def _must_hurry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._bounds.first_bytes_seconds, self.give_up, "slow")

    def _wait(self) -> None:
        """For one byte more than is there; else a level-triggered poll would report those for ever."""
        self._wake_at(self._seen + 1)
        if not self._waits:
            self._waits = True
            self._loop.add_reader(self.sock, self._look)

    def _wake_at(self, count: int) -> None:
        if count != self._wakes_at:
            self._wakes_at = count
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waits:
            self._waits = False
            self._loop.remove_reader(self.sock)
        self._wake_at(1)


_log_of_acceptor = logging.getLogger(__name__)

ACCEPTS_A_WAKE = 16
"""Then others have their turn: this worker's connections, and the other workers at the same socket."""
LAST_ACCEPTS = 4096
"""At most so many are waiting when the listener is closed: the longest queue that a kernel keeps by default."""
ROOM_AT_ONCE = 16
SPARED_SECONDS = 1.0
"""Who connects and has not spoken for so long may still be one that is just about to."""
PAUSE_SECONDS = 0.1
SHUTDOWN_SECONDS = 5.0
"""For the peer's goodbye of TLS."""
OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Tls(Protocol):
    """`tls.ServerTls`."""

    @property
    def takes_tls(self) -> bool: ...
    @property
    def takes_plain(self) -> bool: ...
    def context(self) -> ssl.SSLContext | None:
        """None: there is none to be had."""


class NoTls:
    takes_tls = False
    takes_plain = True

    def context(self) -> None:
        return None


class Acceptor:
    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[Arrival], asyncio.Protocol],
        *,
        port: Port = "remoting",
        frame_limits: FrameLimits | None = FrameLimits(),  # noqa: B008 a tuple
        proxy_from: tuple[Network, ...] = (),
        bounds: Bounds = Bounds(),  # noqa: B008 frozen
        tls: Tls = NoTls(),  # noqa: B008 without state
        metrics: Metrics | None = None,
        make_room: Callable[[], int] = lambda: 0,
        farewell: bytes = b"",
    ) -> None:
        """`frame_limits` None: the port speaks HTTP. `make_room` closes connections that can be spared, the longest
        idle first, and says how many; it must not look at all of them each time. `farewell` is sent to who said
        nothing in time.
        """
        self._listener = listener
        self._make_protocol = make_protocol
        self._port = port
        self._limits = frame_limits
        self._proxy_from = proxy_from
        self._bounds = bounds
        self._tls = tls
        self._metrics = metrics or Metrics()
        self._make_room = make_room
        self._farewell = farewell
        self._open = 0
        self._undecided: dict[Undecided, None] = {}
        """Oldest first."""
        self._handovers: dict[asyncio.Task[None], float] = {}
        """With their beginning; only handshakes take time."""
        self._pause: asyncio.TimerHandle | None = None
        self._leaving = False
        self._closed = False
        self._emptied = asyncio.Event()
        self._settled = asyncio.Event()
        """One less of whom is not known what he brings."""
        self._reserve: int | None = None
        self._sparing = Notice(
            f"The {port} port holds %d connections, its bound: silent ones and unfinished handshakes are closed."
        )
        self._full = Notice(f"The {port} port holds %d connections, its bound: newcomers are closed.")
        self._no_descriptors = Notice(
            f"The {port} port cannot take connections (%s): newcomers are closed, idle ones too. "
            "Raise the limit of open files (ulimit -n)."
        )
        self._cannot = Notice(f"The {port} port cannot take connections: %s.")
        self._no_context = Notice(f"A TLS connection to the {port} port was closed: there is no certificate to show.")

    @property
    def open_connections(self) -> int:
        """Undecided ones, too."""
        return self._open

    def start(self) -> None:
        # Connections have them from the listener; the window's scale is settled before one is accepted.
        for option, size in (
            (socket.SO_SNDBUF, self._bounds.send_buffer_bytes),
            (socket.SO_RCVBUF, self._bounds.receive_buffer_bytes),
        ):
            if size > 0:
                self._listener.setsockopt(socket.SOL_SOCKET, option, size)
        self._listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._reserve = _reserve()
        self._listen()

    def stop_listening(self) -> None:
        """No more newcomers. Those that the kernel has already connected are still taken: behind a balancer each may
        carry a question, and would lose it.
        """
        if self._leaving:
            return
        self._stop_looking()
        for _ in range(LAST_ACCEPTS):
            if not self._accept_one():
                break
        self._listener.close()

    def close(self) -> None:
        """No more newcomers, and none of those of whom nothing is known yet; the listener is closed."""
        if self._closed:
            return
        self._closed = True
        if not self._leaving:
            self._stop_looking()
            self._listener.close()
        for one in list(self._undecided):
            one.give_up("stopping")
        for task in list(self._handovers):
            task.cancel()
        if self._reserve is not None:
            os.close(self._reserve)

    async def wait_empty(self) -> None:
        """Until no connection is left, known or not."""
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    async def wait_decided(self) -> None:
        """Until whoever has connected belongs to a protocol, or is gone."""
        while self._undecided or self._handovers:
            self._settled.clear()
            await self._settled.wait()

    async def wait_closed(self) -> None:
        """Connections that were handed over are their protocols' business."""
        if self._handovers:
            await asyncio.wait(list(self._handovers))

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _stop_looking(self) -> None:
        self._leaving = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listener)

    def _rest(self) -> None:
        if self._leaving:
            return
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._listen)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_WAKE):
            if self._leaving or not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Whether there may be another one."""
        try:
            accepted, address = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            # It ended while it waited.
            return True
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                self._shed(error)
            else:
                self._cannot.say(error.strerror)
            # Whatever it is, a level-triggered poll would report it for ever.
            self._rest()
            return False
        if self._open >= self._bounds.max_connections and not self._spare_some():
            accepted.close()
            self._full.say(self._open)
            self._metrics.connection_refused(self._port, "full")
        else:
            self._receive(accepted, address)
        return True

    def _receive(self, accepted: socket.socket, address: object) -> None:
        sock = OpenSocket.taking(accepted, self._ended)
        self._open += 1
        self._metrics.connections(self._port, self._open)
        real = endpoint_of(address)
        opening = Opening(self._limits, accepts_proxy=is_within(real.host, self._proxy_from))
        one = Undecided(sock, real, opening, self._bounds, on_opened=self._opened, on_given_up=self._given_up)
        self._undecided[one] = None
        one.start()

    def _ended(self) -> None:
        self._open -= 1
        if not self._open:
            self._emptied.set()
        self._metrics.connections(self._port, self._open)

    def _spare_some(self) -> bool:
        latest = self._loop.time() - SPARED_SECONDS
        silent = [one for one in islice(self._undecided, ROOM_AT_ONCE) if one.since <= latest]
        for one in silent:
            one.give_up("spared")
        oldest = islice(self._handovers.items(), ROOM_AT_ONCE)
        # Those that were told before are still there until the loop's next turn, and make room once only.
        shaking = [task for task, since in oldest if since <= latest and not task.cancelling()]
        for task in shaking:
            task.cancel()
            self._metrics.connection_refused(self._port, "spared")
        if silent or shaking:
            self._sparing.say(self._open)
            return True
        return self._make_room() > 0

    def _shed(self, error: OSError) -> None:
        """Those that wait are told at once, by means of a descriptor kept for it, rather than left waiting."""
        self._no_descriptors.say(error.strerror)
        self._spare_some()
        for _ in range(ACCEPTS_A_WAKE):
            if self._reserve is None:
                break
            os.close(self._reserve)
            try:
                self._listener.accept()[0].close()
            except OSError:
                break
            finally:
                self._reserve = _reserve()
            self._metrics.connection_refused(self._port, "descriptors")
        if self._reserve is None:
            self._reserve = _reserve()

    def _given_up(self, one: Undecided, reason: str) -> None:
        del self._undecided[one]
        self._settled.set()
        if self._farewell and reason in ("silent", "slow"):
            with contextlib.suppress(OSError):
                one.sock.send(self._farewell)
        one.sock.close()
        if reason not in ("gone", "stopping"):
            self._metrics.connection_refused(self._port, reason)

    def _opened(self, one: Undecided, opened: Opened) -> None:
        context = None
        if opened.is_tls:
            context = self._tls.context() if self._tls.takes_tls else None
            if context is None:
                self._given_up(one, "tls_unavailable" if self._tls.takes_tls else "tls")
                if self._tls.takes_tls:
                    self._no_context.say()
                return
        elif not self._tls.takes_plain:
            self._given_up(one, "plain")
            return
        del self._undecided[one]
        arrival = arrival_of(one.real, opened.proxy, is_tls=opened.is_tls, began=one.began)
        task = self._loop.create_task(self._hand_over(one.sock, arrival, context))
        self._handovers[task] = self._loop.time()
        task.add_done_callback(lambda done: self._handed_over(done, one.sock))

    def _handed_over(self, task: asyncio.Task[None], sock: OpenSocket) -> None:
        del self._handovers[task]
        self._settled.set()
        if task.cancelled():
            # Perhaps before it had begun; then nobody else owns the socket.
            sock.close()

    async def _hand_over(self, sock: OpenSocket, arrival: Arrival, context: ssl.SSLContext | None) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(arrival),
                sock,
                ssl=context,
                ssl_handshake_timeout=self._bounds.first_bytes_seconds if context else None,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS if context else None,
            )
        except OSError as error:
            # The peer's doing: a handshake that fails, or an end before it was done.
            if context is not None:
                self._metrics.tls_handshake_failed(self._port)
                _log_of_acceptor.debug("The TLS handshake of %s failed: %s", arrival.peer, error)
            sock.close()
        except Exception:
            _log_of_acceptor.exception("A connection of %s could not be taken up.", arrival.peer)
            sock.close()


def _reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
