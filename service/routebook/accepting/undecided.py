"""A connection of which it is not known yet what it brings.

Its first bytes are looked at and left in the socket (why: docs/decisions/0024); only a PROXY header, which is for us
alone, is taken out of it, to the byte.
"""

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable
from math import inf

from routebook.accepting.arrival import Bounds
from routebook.accepting.open_socket import OpenSocket
from routebook.wire.opening import Opened, Opening
from routebook.wire.protocol_error import PeerProtocolError
from routebook.wire.proxy_header import Endpoint

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
