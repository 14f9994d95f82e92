"""One connection of the port: bytes to requests, lookups answered on the spot, the rest to the work queue.

Invariants:
- A lookup is answered in the step of the loop that received it, unless the peer does not take its answers: then what it
  has asked for waits here, nothing more is read, and the buffer stays bounded.
- Requests other than lookups are handled one after the other, in the order they came.
- After a violation of the protocol nothing more is read or answered.
"""

import asyncio
import logging
from collections import deque
from math import inf
from time import perf_counter
from typing import Any, Final, cast

from routebook.errors import RoutebookError, StoreError
from routebook.model.names import Caller
from routebook.observability.logs import PeerLog
from routebook.observability.metrics import reason_of
from routebook.protocol.command import V5_3_1, Request, RequestCode, ResponseCode, request_name
from routebook.protocol.connection import Connection
from routebook.protocol.frame import OwnProtocolError, PeerProtocolError
from routebook.protocol.lookup_template import LookupTemplate
from routebook.remoting.lookups import BATCH_BYTES
from routebook.remoting.port import Port
from routebook.remoting.reply import Asking, Reply, go_away, not_supported, overloaded, reply_to_error
from routebook.remoting.work_queue import Line

_log = logging.getLogger(__name__)
_peers = PeerLog(_log)

LINE_BYTES: Final = 32 << 20
"""A connection with so much waiting is not read from, so that one peer cannot fill the queue's memory alone."""

LOOKUP: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)


class RemotingConnection(asyncio.Protocol):
    """Slots, here and in what it holds for each chunk, keep a connection's own memory together: with hundreds that take
    turns it is out of the processor's cache each time.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_chunks",
        "_deferred",
        "_form",
        "_line",
        "_lookups",
        "_port",
        "_quiet_since",
        "_reads_paused",
        "_stuck_since",
        "_transport",
        "_unfinished_after",
        "_unfinished_since",
        "_wire",
        "_writes_paused",
        "closed",
        "peer",
    )

    def __init__(self, port: Port, peer: str, began: float = inf) -> None:
        """`began`: when the first byte came, where that was before the connection was known for what it is."""
        self._port = port
        self._lookups = port.lookups
        self._wire = Connection(port.limits, encoding=port.encoding)
        self._form: LookupTemplate | None = None
        """The wire's, at hand for the short way, which touches nothing else of the connection's own."""
        self._line = Line(self._handle)
        self._deferred: deque[Any] = deque()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._writes_paused = False
        self._reads_paused = False
        self.peer = peer
        self.closed = False
        self._active = True
        """Something was read or written since the sweep's last look."""
        self._chunks = 0
        """Rises with whole frames: an unfinished one is the same as at the last look if this number is. The short way
        leaves it alone, as it ends no unfinished one.
        """
        self._quiet_since = inf
        self._stuck_since = inf
        self._unfinished_since = began
        self._unfinished_after = 0

    # -- told by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._port.high_water, low=self._port.low_water)
        self._port.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # Whatever ended it, it means the same.
        self.closed = True
        self._deferred.clear()
        self._port.queue.unblock(self._line)
        self._port.went(self)

    def data_received(self, data: bytes) -> None:
        self._active = True
        at = 0
        port = self._port
        if (form := self._form) and not port.is_draining:
            while not self._writes_paused:
                answers: list[bytes] = []
                end = port.short_way.answer(form, data, at, answers)
                if end == at:
                    break
                self._transport.write(b"".join(answers))
                if end == len(data):
                    return
                at = end
        events = self._wire.receive(data[at:] if at else data)
        self._form = self._wire.lookup_form
        if events:
            self._chunks += 1
            self._take(events)

    def eof_received(self) -> bool:
        """A peer that has said its last word has left: nobody half-closes here, and a lost broker must be noticed."""
        return False

    def pause_writing(self) -> None:
        self._writes_paused = True
        self._line.blocked = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writes_paused = False
        self._active = True
        deferred, self._deferred = self._deferred, deque()
        if deferred:
            self._take(list(deferred))
        if not self._writes_paused:
            self._port.queue.unblock(self._line)
            self._resume_reading()

    # -- told by the sweep and by the sessions

    def has_been_quiet_since(self, now: float) -> float:
        """Neither read nor written. These three say "never" as infinity."""
        if self._active:
            self._active = False
            self._quiet_since = now
        return self._quiet_since

    def has_unfinished_frame_since(self, now: float) -> float:
        if not self._wire.unread_bytes or self._reads_paused:
            self._unfinished_since = inf
        elif self._unfinished_after != self._chunks or self._unfinished_since > now:
            self._unfinished_after, self._unfinished_since = self._chunks, now
        return self._unfinished_since

    def has_been_stuck_since(self, now: float) -> float:
        """It does not take its answers; nor its last ones, where it is being closed."""
        if not self._writes_paused and not self.is_closing:
            self._stuck_since = inf
        elif self._stuck_since > now:
            self._stuck_since = now
        return self._stuck_since

    @property
    def unread_bytes(self) -> int:
        """Of a frame that has begun, what has arrived of it."""
        return self._wire.unread_bytes

    @property
    def is_closing(self) -> bool:
        """Closed by us, and perhaps waiting for the peer to take what was answered."""
        return self._transport.is_closing()

    @property
    def is_busy(self) -> bool:
        """Somebody waits for an answer."""
        return bool(self._line.waiting) or self._line.busy or bool(self._deferred)

    def close(self, reason: str) -> None:
        """What has been answered still leaves."""
        if not self.closed:
            _peers.log(logging.DEBUG, "Closing the connection of %s: %s.", self.peer, reason)
            self._transport.close()

    def abort(self, reason: str) -> None:
        if not self.closed:
            _peers.log(logging.INFO, "Cutting the connection of %s: %s.", self.peer, reason)
            self._transport.abort()

    # -- requests

    def _take(self, events: list[Any]) -> None:
        answers: list[bytes] = []
        waiting_bytes = 0
        violation: PeerProtocolError | None = None
        for at, event in enumerate(events):
            if type(event) is not Request:
                violation = event if type(event) is PeerProtocolError else None
                continue
            if event.code == LOOKUP and not self._port.is_draining:
                found = self._lookups.find(event)
                if type(found) is bytes:
                    try:
                        answers += self._wire.answer_in_parts(event, ResponseCode.SUCCESS, found)
                    except OwnProtocolError as error:
                        answers.append(self._bytes_of(event, _too_large(error)))
                    waiting_bytes += len(found)
                elif (reply := self._settled(event, cast("Reply | None", found))) is not None:
                    answers.append(self._bytes_of(event, reply))
                if waiting_bytes >= BATCH_BYTES:
                    self._write(answers)
                    answers, waiting_bytes = [], 0
                    if self._writes_paused:
                        self._deferred.extend(events[at + 1 :])
                        return
            elif (reply := self._queued(event)) is not None:
                answers.append(self._bytes_of(event, reply))
        if answers:
            self._write(answers)
        if violation:
            self._port.violated(self.peer, violation)
            self._transport.close()

    def _queued(self, request: Request) -> Reply | None:
        """An answer only where the request gets no turn."""
        port = self._port
        if port.is_draining and request.version > V5_3_1:
            return go_away()
        if request.code == LOOKUP:
            found = self._lookups.find(request)
            return Reply(body=found) if isinstance(found, bytes) else self._settled(request, found)
        if request.code not in port.handlers:
            return not_supported(request.code)
        if not port.queue.put(self._line, request):
            return overloaded()
        if self._line.queued_bytes > LINE_BYTES:
            self._pause_reading()
        return None

    def _settled(self, request: Request, reply: Reply | None) -> Reply | None:
        """A lookup that is not: it has to ask elsewhere, beside all others."""
        if reply is None and not self._port.lookup_queue.put(Line(self._look_elsewhere), request):
            return overloaded()
        return reply

    async def _look_elsewhere(self, request: Request) -> None:
        found = await self._lookups.find_elsewhere(request)
        self._answer(request, Reply(body=found) if isinstance(found, bytes) else found)

    async def _handle(self, request: Request) -> None:
        reply: Reply | None
        caller = Caller(self._port.worker, self.peer)
        asking = Asking(request, self, caller, lambda early: self._answer(request, early))
        metrics, began = self._port.metrics, perf_counter()
        try:
            reply = await self._port.handlers[request.code](asking)
        except RoutebookError as error:
            # That the store is away is said once, elsewhere; a thousand brokers would say it every few milliseconds.
            level = logging.DEBUG if isinstance(error, StoreError) else logging.INFO
            _peers.log(level, "%s from %s: %s", request_name(request.code), self.peer, error)
            metrics.request_refused("remoting", reason_of(error))
            reply = reply_to_error(error)
        except Exception as error:
            _log.exception("%s from %s failed.", request_name(request.code), self.peer)
            metrics.request_refused("remoting", "failed")
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__} in the name server; see its log.")
        metrics.remoting_request(request_name(request.code), perf_counter() - began)
        if reply is not None:
            self._answer(request, reply)
        # The bytes of this request still count in its line: where nothing waits behind it, they do not matter.
        has_room = not self._line.waiting or self._line.queued_bytes <= LINE_BYTES // 2
        if self._reads_paused and not self._writes_paused and has_room:
            self._resume_reading()

    def _answer(self, request: Request, reply: Reply) -> None:
        if not self.closed:
            self._write([self._bytes_of(request, reply)])

    def _bytes_of(self, request: Request, reply: Reply) -> bytes:
        try:
            return self._wire.answer(request, reply.code, ext=reply.ext, remark=reply.remark, body=reply.body)
        except OwnProtocolError as error:
            refused = _too_large(error)
            return self._wire.answer(request, refused.code, remark=refused.remark)

    def _write(self, answers: list[bytes]) -> None:
        self._active = True
        self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))

    def _pause_reading(self) -> None:
        if not self._reads_paused and not self.closed:
            self._reads_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reads_paused and not self.closed and not self._transport.is_closing():
            self._reads_paused = False
            self._transport.resume_reading()


def _too_large(error: OwnProtocolError) -> Reply:
    """An answer beyond what peers take, such as the list of a million topics."""
    return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
