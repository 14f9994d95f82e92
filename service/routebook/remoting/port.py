"""The connections of the port: what they share (`Port`), and one of them (`RemotingConnection`).

Invariants of a connection:
- A lookup is answered in the step of the event loop that received it, unless the peer does not read its answers. Then
  its requests wait in the connection and nothing more is read, so that the buffer of answers stays bounded.
- Requests other than lookups are handled one after the other, in the order they arrived. Only a heartbeat (904)
  overtakes others. It changes nothing but a deadline, so its place does not matter.
- A registration (103) or query (322) that has to wait counts as a heartbeat when it arrives.
- A closed connection holds no memory but its own, and nothing refers to it.
- After a violation of the protocol nothing more is read or answered.

A sweep once a second looks at all connections and closes those that are idle, unfinished or stuck, so that no request
needs a timer of its own.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Final, cast

from routebook.errors import ForbiddenError, NotReadyError, NotSeenYetError, RoutebookError, StoreError
from routebook.listeners.acceptor import ConnectionInfo
from routebook.listeners.peers import Peer
from routebook.listeners.tls import certificate_names
from routebook.observability.logs import PeerLog
from routebook.observability.metrics import Metrics, PortFigures, reason_of
from routebook.protocol.connection import Connection, Event
from routebook.protocol.frame import (
    ONEWAY_FLAG,
    SPOKEN_VERSION,
    V5_3_1,
    FrameLimits,
    HeaderEncoding,
    OwnProtocolError,
    PeerProtocolError,
    Request,
    RequestCode,
    ResponseCode,
)
from routebook.protocol.headers import read_text, success_head_encoder
from routebook.protocol.lookup_template import LookupTemplate
from routebook.registry.registry import Registry
from routebook.remoting.cluster_test import ClusterTestLookups
from routebook.remoting.lookups import BATCH_BYTES, Lookups
from routebook.remoting.permissions import Permissions
from routebook.remoting.requests import (
    CHANGING,
    SIGNS_OF_LIFE,
    ConnectionQueue,
    Handler,
    Reply,
    RequestContext,
    RequestRates,
    Turn,
    WorkQueue,
    anonymous_caller,
    go_away,
    lookup_rate,
    not_supported,
    object_of,
    overloaded,
    reply_to_error,
    too_many_requests,
)
from routebook.remoting.room import Room
from routebook.settings import LiveSettings

_log = logging.getLogger(__name__)
_peer_log = PeerLog(_log)

SWEEP_S: Final = 1.0
LOW_WATER_SHARE: Final = 4
"""Reading continues when the output buffer has fallen to this part of its high-water mark, as is asyncio's default."""
CONNECTION_QUEUE_BYTES: Final = 32 << 20
"""A connection with more waiting than this is not read from, so that one peer cannot fill the queue's memory alone."""
LOOKUP: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
HEARTBEAT: Final = int(RequestCode.BROKER_HEARTBEAT)
OWN_HEARTBEAT: Final = "made from a request that waits"
"""Marks a heartbeat without a signature of its own. No peer can send this very object."""
LARGE_UNREAD_BYTES: Final = 65_536
"""An incomplete frame of more bytes counts at once; the smaller ones are counted by the sweep."""


class Port:
    def __init__(
        self,
        registry: Registry,
        live: LiveSettings,
        handlers: Mapping[int, Handler],
        permissions: Permissions,
        metrics: Metrics,
    ) -> None:
        settings = live.current
        self.registry = registry
        self.handlers = handlers
        self.permissions = permissions
        self.worker = registry.worker
        self.queue = WorkQueue(
            runners=settings.default_thread_pool_nums,
            capacity=settings.default_thread_pool_queue_capacity,
            max_bytes=settings.max_queued_bytes,
        )
        self.lookup_queue = WorkQueue(
            runners=settings.client_request_thread_pool_nums,
            capacity=settings.client_request_thread_pool_queue_capacity,
            max_bytes=settings.max_queued_bytes,
        )
        """Only for lookups that ask another name server (`cluster_test`); all others are answered as they arrive."""
        self.limits = FrameLimits(settings.max_frame_bytes, settings.max_header_bytes)
        self.encoding = HeaderEncoding[settings.serialize_type]
        self.lookups = (ClusterTestLookups if settings.cluster_test else Lookups)(
            registry,
            live,
            metrics,
            success_head_encoder(SPOKEN_VERSION, self.encoding, self.limits.max_frame_bytes),
            permissions,
        )
        self.high_water = settings.write_buffer_high_water_mark or settings.max_output_bytes
        self.low_water = min(
            settings.write_buffer_low_water_mark or self.high_water // LOW_WATER_SHARE, self.high_water
        )
        self.rates = RequestRates(settings.max_requests_per_second)
        self.is_draining = False
        self.connections: set[RemotingConnection] = set()
        self.violations: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        """Connections closed by the port, by reason."""
        self._live = live
        self.metrics = metrics
        self._no_connections = asyncio.Event()
        self.room = Room(registry, settings)
        self._large_unread: dict[RemotingConnection, int] = {}
        self._large_unread_bytes = 0
        """Bytes of incomplete frames that have grown large since they began."""

    def new_connection(self, info: ConnectionInfo) -> "RemotingConnection":
        return RemotingConnection(self, info.peer, info.peer_costs, info.first_byte_at)

    def add(self, connection: "RemotingConnection") -> None:
        self.connections.add(connection)
        self.room.add(connection, len(self.connections))
        self._no_connections.clear()

    def remove(self, connection: "RemotingConnection") -> None:
        self.connections.discard(connection)
        self.room.remove(connection, len(self.connections))
        self.note_unread(connection, 0)
        self.registry.sessions.connection_closed(connection)
        if not self.connections:
            self._no_connections.set()

    def count_violation(self, peer: str, error: PeerProtocolError) -> None:
        self.violations[error.violation.value] += 1
        _peer_log.log(logging.INFO, "%s violated the protocol and is disconnected: %s", peer, error)

    def make_room(self, host: str | None) -> int:
        """Closes some connections for a new one from `host`, and returns their number."""
        closed = self.room.free(host, self.connections)
        self.cut["room"] += closed
        return closed

    async def wait_empty(self) -> None:
        if self.connections:
            await self._no_connections.wait()

    async def wait_idle(self) -> None:
        await self.queue.join()
        await self.lookup_queue.join()

    async def close(self) -> None:
        self.queue.close()
        self.lookup_queue.close()
        await self.lookups.close()

    def figures(self) -> PortFigures:
        return PortFigures(
            found=self.lookups.found,
            not_found=self.lookups.not_found,
            not_ready=self.lookups.not_ready,
            waiting={"lookups": self.lookup_queue.length, "others": self.queue.length},
            slow_ms={"lookups": self.lookup_queue.slow_ms(), "others": self.queue.slow_ms()},
            refused=self.queue.refused + self.lookup_queue.refused,
            violations=self.violations,
            cut=self.cut,
        )

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._sweep_once(time.monotonic())

    def _sweep_once(self, now: float) -> None:
        settings = self._live.current
        idle_s = settings.server_channel_max_idle_time_seconds
        # A sweep sees a state up to one period late. That is subtracted, so that the deadline holds.
        unfinished_s = max(settings.incomplete_frame_timeout_ms / 1000 - SWEEP_S, SWEEP_S)
        idle: list[tuple[float, RemotingConnection]] = []
        for connection in tuple(self.connections):
            idle_since = connection.idle_since(now)
            if idle_since < now and not connection.is_closing:
                idle.append((idle_since, connection))
            if connection.stuck_since(now) <= now - unfinished_s:
                self._abort(connection, "it does not take its answers")
            elif connection.unfinished_since(now) <= now - unfinished_s:
                self._abort(connection, "it does not finish what it began")
            elif idle_s and idle_since <= now - idle_s and not connection.is_closing:
                self.cut["idle"] += 1
                connection.close("idle")
        self._limit_unfinished(settings.max_queued_bytes)
        self.room.observe(now, idle, self.connections)

    def note_unread(self, connection: "RemotingConnection", unread_bytes: int) -> None:
        """Called when an incomplete frame has grown, or is no longer incomplete. In the second until the next sweep,
        frames of a gigabyte may begin.
        """
        before = self._large_unread.pop(connection, 0)
        if unread_bytes > LARGE_UNREAD_BYTES:
            self._large_unread[connection] = unread_bytes
        else:
            unread_bytes = 0
        self._large_unread_bytes += unread_bytes - before
        if self._large_unread_bytes > self._live.current.max_queued_bytes:
            self._limit_unfinished(self._live.current.max_queued_bytes)

    def _limit_unfinished(self, max_bytes: int) -> None:
        """A thousand frames of 16 MiB may be incomplete at once. The largest are dropped first, since few peers send
        those.
        """
        unread = {one: one.unread_bytes for one in self.connections if one.unread_bytes}
        total = sum(unread.values())
        while total > max_bytes:
            largest = max(unread, key=unread.__getitem__)
            total -= unread.pop(largest)
            self._large_unread_bytes -= self._large_unread.pop(largest, 0)
            self._abort(largest, "frames that are not finished take too much memory")

    def _abort(self, connection: "RemotingConnection", reason: str) -> None:
        self.cut[reason] += 1
        connection.abort(reason)


class RemotingConnection(asyncio.Protocol):
    """Slots keep the memory of a connection together, which with hundreds that take turns is out of the processor's
    cache each time.
    """

    __slots__ = (
        "__weakref__",
        "_chunks",
        "_deferred",
        "_has_large_unread",
        "_heartbeats",
        "_idle_since",
        "_is_active",
        "_lookup_rate",
        "_lookups",
        "_port",
        "_queue",
        "_reads_paused",
        "_stuck_since",
        "_template",
        "_transport",
        "_unfinished_after",
        "_unfinished_since",
        "_wire",
        "_writes_paused",
        "closed",
        "peer",
        "peer_costs",
        "signed_in_as",
    )

    def __init__(self, port: Port, peer: str, peer_costs: Peer, first_byte_at: float = inf) -> None:
        """`first_byte_at`: when the first byte arrived, if that was before the connection was made."""
        self._port = port
        self._lookups = port.lookups
        self._lookup_rate = lookup_rate(peer_costs, self._pause_reading, self._resume_reading)
        self._wire = Connection(port.limits, encoding=port.encoding)
        self._template: LookupTemplate | None = None
        """The same as in `_wire`. Answering by it touches nothing else of the connection's own."""
        self._queue = ConnectionQueue(self._handle)
        self._heartbeats: ConnectionQueue | None = None
        """Heartbeats that overtake other requests; made when there is one."""
        self._has_large_unread = False
        self._deferred: deque[Event] = deque()
        """Requests that wait until the peer reads its answers."""
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._writes_paused = False
        self._reads_paused = False
        self.peer = peer
        self.peer_costs = peer_costs
        self.closed = False
        self.signed_in_as = ""
        self._is_active = True
        """Whether anything was read or written since the last sweep."""
        self._chunks = 0
        """Number of chunks with complete frames. An incomplete frame is the same as at the last sweep if this has not
        changed. Chunks of lookups that match the template are not counted, since they complete no incomplete frame.
        """
        self._idle_since = inf
        self._stuck_since = inf
        self._unfinished_since = first_byte_at
        self._unfinished_after = 0

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._port.high_water, low=self._port.low_water)
        self._port.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # Every kind of end means the same.
        self.closed = True
        self._deferred.clear()
        self._port.remove(self)
        # The transport, the bytes of an incomplete frame and waiting requests are released now. Left to the garbage
        # collector, they would fill the memory first.
        self._template = None
        self._wire = cast("Connection", None)
        for queue in self._queues():
            self._port.queue.peer_left(queue)
        self._transport = cast("asyncio.Transport", None)
        if self._lookup_rate:
            self._lookup_rate.close()

    def data_received(self, data: bytes) -> None:
        self._is_active = True
        at = 0
        if (template := self._template) and not self._port.is_draining:
            lookups = self._lookups
            while not self._writes_paused:
                answers: list[bytes] = []
                end = lookups.answer_chunk(template, data, at, answers)
                if end == at:
                    break
                self._transport.write(b"".join(answers))
                if self._lookup_rate:
                    self._lookup_rate.charge(len(answers))
                if end == len(data):
                    return
                at = end
        wire = self._wire
        events = wire.receive(data[at:] if at else data)
        self._template = self._port.permissions.usable_template(wire.lookup_template, self)
        if self._has_large_unread or len(data) > LARGE_UNREAD_BYTES:
            unread = wire.unread_bytes
            self._has_large_unread = unread > 0
            self._port.note_unread(self, unread)
        if events:
            self._chunks += 1
            self._handle_events(events)

    def eof_received(self) -> bool:
        """A peer that has closed its side has left: no RocketMQ peer half-closes, and a lost broker must be noticed."""
        return False

    def pause_writing(self) -> None:
        self._writes_paused = True
        for queue in self._queues():
            queue.blocked = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writes_paused = False
        self._is_active = True
        deferred, self._deferred = self._deferred, deque()
        if deferred:
            self._handle_events(list(deferred))
        if not self._writes_paused:
            for queue in self._queues():
                self._port.queue.unblock(queue)
            self._resume_reading()

    # -- called by the sweep and by the sessions

    def idle_since(self, now: float) -> float:
        """Since when nothing was read or written. For this and the next two, infinity means "not at all"."""
        if self._is_active:
            self._is_active = False
            self._idle_since = now
        return self._idle_since

    def unfinished_since(self, now: float) -> float:
        """Since when a frame has been incomplete."""
        if not self._wire.unread_bytes or self._reads_paused:
            self._unfinished_since = inf
        elif self._unfinished_after != self._chunks or self._unfinished_since > now:
            self._unfinished_after, self._unfinished_since = self._chunks, now
        return self._unfinished_since

    def stuck_since(self, now: float) -> float:
        """Since when the peer has not read its answers, or the last ones while the connection is being closed."""
        if not self._writes_paused and not self.is_closing:
            self._stuck_since = inf
        elif self._stuck_since > now:
            self._stuck_since = now
        return self._stuck_since

    @property
    def unread_bytes(self) -> int:
        """The bytes of an incomplete frame."""
        return self._wire.unread_bytes

    @property
    def certificate_names(self) -> Sequence[str]:
        return certificate_names(self._transport.get_extra_info("peercert"))

    @property
    def is_closing(self) -> bool:
        """Closed by us, perhaps still waiting until the peer has read its answers."""
        return self.closed or self._transport.is_closing()

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._deferred) or not all(queue.is_idle for queue in self._queues())

    def close(self, reason: str) -> None:
        """Answers that were written are still sent."""
        if not self.closed:
            _peer_log.log(logging.DEBUG, "Closing the connection of %s: %s.", self.peer, reason)
            self._transport.close()

    def abort(self, reason: str) -> None:
        if not self.closed:
            _peer_log.log(logging.INFO, "Aborting the connection of %s: %s.", self.peer, reason)
            self._transport.abort()

    # -- requests

    def _handle_events(self, events: list[Event]) -> None:
        answers: list[bytes] = []
        batch_bytes = 0
        violation: PeerProtocolError | None = None
        find = self._find_if_allowed if self._port.permissions.guards_lookups else self._lookups.find
        for at, event in enumerate(events):
            if type(event) is not Request:
                violation = event if isinstance(event, PeerProtocolError) else None
                continue
            if event.code == LOOKUP and not self._port.is_draining:
                found = find(event)
                if type(found) is bytes:
                    try:
                        answers += self._wire.answer_in_parts(event, ResponseCode.SUCCESS, found)
                    except OwnProtocolError as error:
                        answers.append(self._encode(event, reply_to_error(error)))
                    batch_bytes += len(found)
                elif (reply := self._queue_for_upstream(event, cast("Reply | None", found))) is not None:
                    answers.append(self._encode(event, reply))
                if batch_bytes >= BATCH_BYTES:
                    self._write(answers)
                    answers, batch_bytes = [], 0
                    if self._writes_paused:
                        self._deferred.extend(events[at + 1 :])
                        return
            elif (reply := self._enqueue(event)) is not None:
                answers.append(self._encode(event, reply))
        if answers:
            self._write(answers)
        if self._lookup_rate:
            self._lookup_rate.charge(len(events))
        if violation:
            self._port.count_violation(self.peer, violation)
            self._transport.write(violation.answer(self._port.registry.live.current.http_port))
            self._transport.close()

    def _enqueue(self, request: Request) -> Reply | None:
        """A reply only if the request does not get into the queue."""
        port = self._port
        if port.is_draining and request.version > V5_3_1:
            return go_away()
        if request.code == LOOKUP:
            found = self._find_if_allowed(request)
            return Reply(body=found) if isinstance(found, bytes) else self._queue_for_upstream(request, found)
        if request.code not in port.handlers:
            return not_supported(request.code)
        if exceeded := port.rates.charge(self.peer_costs, request.code):
            return self._refuse_unread(request, too_many_requests(*exceeded))
        if request.code in SIGNS_OF_LIFE and not self._queue.is_idle:
            if request.code == HEARTBEAT:
                is_accepted = port.queue.put(self._heartbeat_queue(), request)
                return None if is_accepted else self._refuse_unread(request, overloaded())
            self._count_as_heartbeat(request)
        is_accepted = port.queue.put(self._queue, request)
        if self._queue.queued_bytes > CONNECTION_QUEUE_BYTES:
            self._pause_reading()
        return None if is_accepted else self._refuse_unread(request, overloaded())

    def _refuse_unread(self, request: Request, reply: Reply) -> Reply:
        """Its signature was not checked, so its sender is not known."""
        caller = anonymous_caller(request, self.peer, self._port.worker)
        self._port.registry.audit.refused(caller, what=object_of(request), reason=f"BusyError: {reply.remark}")
        return reply

    def _count_as_heartbeat(self, request: Request) -> None:
        """For a registration or query that has to wait: its broker is alive, whatever the request turns out to be."""
        cluster, address = read_text(request.ext, "clusterName"), read_text(request.ext, "brokerAddr")
        registry = self._port.registry
        if self._port.permissions.guards(HEARTBEAT) and not registry.sessions.has_instances(self):
            return  # No registration on this connection was authorized.
        if cluster and address and registry.is_own_instance(self, cluster, address):
            ext = {"clusterName": cluster, "brokerAddr": address}
            heartbeat = Request(HEARTBEAT, request.opaque, ext, flag=ONEWAY_FLAG, remark=OWN_HEARTBEAT)
            self._port.queue.put(self._heartbeat_queue(), heartbeat)

    def _heartbeat_queue(self) -> ConnectionQueue:
        if self._heartbeats is None:
            self._heartbeats = ConnectionQueue(self._handle)
            self._heartbeats.blocked = self._queue.blocked
        return self._heartbeats

    def _queues(self) -> tuple[ConnectionQueue, ...]:
        return (self._queue,) if self._heartbeats is None else (self._queue, self._heartbeats)

    def _find_if_allowed(self, request: Request) -> bytes | Reply | None:
        return self._port.permissions.refuse_lookup(request, self) or self._lookups.find(request)

    def _queue_for_upstream(self, request: Request, reply: Reply | None) -> Reply | None:
        """Without a reply, the lookup asks another name server, concurrently with all others."""
        if reply is None and not self._port.lookup_queue.put(ConnectionQueue(self._ask_upstream), request):
            return overloaded()
        return reply

    async def _ask_upstream(self, request: Request, _turn: Turn) -> None:
        if self.closed:
            return
        found = await self._lookups.ask_upstream(request)
        self._answer(request, Reply(body=found) if isinstance(found, bytes) else found)

    async def _handle(self, request: Request, turn: Turn) -> None:
        caller = anonymous_caller(request, self.peer, self._port.worker)
        name = caller.verb
        context = RequestContext(
            request, self, caller, lambda early: self._answer(request, early), turn, self.peer_costs
        )
        metrics, start = self._port.metrics, perf_counter()
        try:
            if self._port.permissions.guards(request.code) and request.remark is not OWN_HEARTBEAT:
                context = await self._port.permissions.identify(context, self)
                self._port.permissions.authorize(context)
            reply = await self._port.handlers[request.code](context)
        except RoutebookError as error:
            # An unreachable store is logged once, elsewhere; here a thousand brokers would log it.
            level = logging.DEBUG if isinstance(error, StoreError) else logging.INFO
            _peer_log.log(level, "%s from %s: %s", name, self.peer, error)
            metrics.request_refused("remoting", reason_of(error))
            self._audit_error(context, error)
            reply = reply_to_error(error)
        except Exception as error:
            _log.exception("%s from %s failed.", name, self.peer)
            metrics.request_refused("remoting", "failed")
            self._port.registry.audit.failed(caller, what=object_of(request), reason=type(error).__name__)
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__} in the name server; see its log.")
        metrics.remoting_request(name, perf_counter() - start)
        if reply is not None:
            self._answer(request, reply)
        # This request's bytes still count in its queue, which does not matter if no other request waits.
        has_room = not self._queue.waiting or self._queue.queued_bytes <= CONNECTION_QUEUE_BYTES // 2
        if self._reads_paused and not self._writes_paused and has_room:
            self._resume_reading()

    def _audit_error(self, context: RequestContext, error: RoutebookError) -> None:
        """Requests that only read are recorded when a permission is missing."""
        audit, request = self._port.registry.audit, context.request
        reason = f"{type(error).__name__}: {error.message}"
        if request.code in CHANGING and isinstance(error, StoreError | NotReadyError | NotSeenYetError):
            audit.failed(context.caller, what=object_of(request), reason=reason)
        elif request.code in CHANGING or isinstance(error, ForbiddenError):
            audit.refused(context.caller, what=object_of(request), reason=reason)

    def _answer(self, request: Request, reply: Reply) -> None:
        if not self.closed:
            self._write([self._encode(request, reply)])

    def _encode(self, request: Request, reply: Reply) -> bytes:
        try:
            return self._wire.answer(request, reply.code, ext=reply.ext, remark=reply.remark, body=reply.body)
        except OwnProtocolError as error:
            # Peers would not accept the answer, such as a list of a million topics.
            reply = reply_to_error(error)
            return self._wire.answer(request, reply.code, remark=reply.remark)

    def _write(self, answers: list[bytes]) -> None:
        self._is_active = True
        self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))

    def _pause_reading(self) -> None:
        if not self._reads_paused and not self.closed:
            self._reads_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reads_paused and not self._writes_paused and not self.is_closing:
            self._reads_paused = False
            self._transport.resume_reading()
