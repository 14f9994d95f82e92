"""A simulated broker: it listens at its own address, keeps a connection to each name server, and registers with all of
them at once. Its requests have the bytes that brokers of RocketMQ 5.x send.
"""

import asyncio
import contextlib
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.model.broker import DataVersion, QueueData
from routebook.protocol.frame import Ext, RequestCode, Response
from routebook.protocol.headers import write_fields
from routebook.simulate.client import LateResponseError, ServerConnection
from routebook.simulate.records import Counts, Journal, now_ms

_CRC_BITS = 0x7FFFFFFF
"""RocketMQ drops the sign bit of the checksum."""


def registration_body(version: DataVersion, topics: Mapping[str, QueueData]) -> bytes:
    data_version = {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }
    wrapper = {
        "dataVersion": data_version,
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": version.timestamp},
        "topicConfigTable": {name: _topic(name, queue) for name, queue in topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def registration_ext(
    body: bytes, *, cluster: str, broker: str, broker_id: int, address: str, timeout_ms: int | None
) -> Ext:
    host, _, port = address.rpartition(":")
    return write_fields(
        {
            "brokerName": broker,
            "brokerAddr": address,
            "clusterName": cluster,
            "haServerAddr": f"{host}:{int(port) + 1}",
            "brokerId": broker_id,
            "heartbeatTimeoutMillis": timeout_ms,
            "enableActingMaster": False,
            "compressed": False,
            "bodyCrc32": zlib.crc32(body) & _CRC_BITS,
        }
    )


def _topic(name: str, queue: QueueData) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": queue.perm,
        "readQueueNums": queue.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": queue.flags,
        "writeQueueNums": queue.write_queues,
    }


@dataclass
class TopicTable:
    """The topic table of a group. Slaves copy the master's, and it outlives every broker, like their files."""

    topics: dict[str, QueueData]
    version: DataVersion = field(default_factory=lambda: DataVersion(0, int(time.time() * 1000), 1))
    _body: bytes = b""
    _body_version: DataVersion | None = None

    def put(self, topic: str, queue: QueueData) -> None:
        self.topics = {**self.topics, topic: queue}
        self.raise_version()

    def remove(self, topic: str) -> bool:
        if topic not in self.topics:
            return False
        self.topics = {name: queue for name, queue in self.topics.items() if name != topic}
        self.raise_version()
        return True

    def raise_version(self, *, state_versions: int = 0) -> None:
        before = self.version
        now_ms = max(int(time.time() * 1000), before.timestamp)
        self.version = replace(
            before, counter=before.counter + 1, timestamp=now_ms, state_version=before.state_version + state_versions
        )

    def body(self) -> bytes:
        """The body of a full registration: the same bytes until something changes, like a real broker's."""
        if self._body_version != self.version:
            self._body = registration_body(self.version, self.topics)
            self._body_version = self.version
        return self._body


@dataclass
class GroupState:
    name: str
    cluster: str
    table: TopicTable
    send_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for every request about this group, from its brokers or from an operator, so that the journal has the order
    in which name servers received them.
    """
    trouble_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for the whole of a trouble, since a group is in one at a time. Acquired before `send_lock`."""


FIRST_PERIOD_S: Final = 10.0
"""Time from the start to the first periodic registration."""
PERIOD_LIMITS_S: Final = (10.0, 60.0)
RECONNECT_S: Final = 3.0
"""Interval at which lost connections are opened again."""
REGISTER_MS: Final = 24_000
UNREGISTER_MS: Final = 3_000

State = Literal["down", "up", "silent"]


@dataclass
class BrokerOptions:
    """The options that all brokers of a simulation share."""

    name_servers: Sequence[str]
    period_s: float
    timeout_ms: int | None
    """Sent with registrations; None for the name server's default (120 s)."""
    journal: Journal
    counts: Counts

    def __post_init__(self) -> None:
        self.period_s = clamp_period(self.period_s)


def clamp_period(period_s: float) -> float:
    """RocketMQ limits `registerNameServerPeriod` in the same way."""
    shortest, longest = PERIOD_LIMITS_S
    return min(max(period_s, shortest), longest)


@dataclass
class SimulatedBroker:
    options: BrokerOptions
    group: GroupState
    broker_id: int
    address: str
    state: State = "down"
    life: int = 0
    """Number of its starts."""
    _connections: dict[str, ServerConnection] = field(default_factory=dict)
    _listener: asyncio.Server | None = None
    _inbound: set[asyncio.StreamWriter] = field(default_factory=set)
    _loops: list[asyncio.Task[None]] = field(default_factory=list)
    _registered_versions: set[str] = field(default_factory=set)
    """Data versions of its full registrations since its last start. The journal does not repeat their topics."""

    async def start(self, reason: str) -> None:
        """Returns after the first registration, successful or not."""
        await self._listen()
        self.life += 1
        self.state = "up"
        self._registered_versions.clear()
        self._connections = {address: ServerConnection(address) for address in self.options.name_servers}
        self._record("started", reason=reason)
        self._loops = [asyncio.create_task(self._keep_connected())]
        await self.register(reason)
        self._loops.append(asyncio.create_task(self._register_periodically()))

    async def unregister_and_stop(self) -> None:
        """An orderly stop: request 104 to each name server, one after the other."""
        await self._finish_loops()
        if self.state == "up":
            await self._unregister()
        await self._stop("orderly")

    async def crash(self) -> None:
        """Like kill -9: the listener and all connections close at once, without a request."""
        await self._end_loops()
        await self._stop("crash")

    async def become_silent(self) -> None:
        """Sends nothing more. Its connections stay open, and its port accepts connections."""
        await self._finish_loops()
        self.state = "silent"
        self._record("silence-began")

    async def resume(self) -> None:
        self.state = "up"
        self._record("silence-ended")
        self._registered_versions.clear()
        self._loops = [asyncio.create_task(self._keep_connected())]
        await self.register("silence-ended")
        self._loops.append(asyncio.create_task(self._register_periodically()))

    async def register(self, reason: str, topics: Mapping[str, QueueData] | None = None) -> bool:
        """Returns whether a name server accepted it. With `topics`, only these are registered."""
        async with self.group.send_lock:
            return await self.register_now(reason, topics)

    async def register_now(self, reason: str, topics: Mapping[str, QueueData] | None = None) -> bool:
        """Like `register`, for a caller that holds the group's `send_lock`."""
        if self.state != "up":
            return False
        group, version = self.group, self.group.table.version
        sent_topics = group.table.topics if topics is None else dict(topics)
        body = group.table.body() if topics is None else registration_body(version, sent_topics)
        ext = registration_ext(
            body,
            cluster=group.cluster,
            broker=group.name,
            broker_id=self.broker_id,
            address=self.address,
            timeout_ms=self.options.timeout_ms,
        )
        repeats = topics is None and version.pack() in self._registered_versions
        sent_ms = now_ms()
        answers: dict[str, dict[str, object]] = {}
        try:
            await self._request_from_all(RequestCode.REGISTER_BROKER, ext, body, REGISTER_MS, answers)
        finally:
            # Also after a cancellation, because a name server may have received it.
            self._record(
                "registered",
                reason=reason,
                sent_ms=sent_ms,
                full=topics is None,
                repeats=repeats,
                data_version=[version.state_version, version.timestamp, version.counter],
                **({} if repeats else {"topics": {name: queue_numbers(queue) for name, queue in sent_topics.items()}}),
                servers=answers,
            )
        accepted = any(answer.get("code") == 0 for answer in answers.values())
        if accepted and topics is None:
            self._registered_versions.add(version.pack())
        return accepted

    # -- connections to name servers

    async def _request_from_all(
        self, code: int, ext: Ext, body: bytes, timeout_ms: int, answers: dict[str, dict[str, object]]
    ) -> None:
        async def request(connection: ServerConnection) -> None:
            answers[connection.address] = await call_and_describe(
                connection, code, ext, body, timeout_ms=timeout_ms, counts=self.options.counts
            )

        async with asyncio.TaskGroup() as requests:
            for connection in self._connections.values():
                requests.create_task(request(connection))

    async def _unregister(self) -> None:
        group = self.group
        ext = {
            "brokerName": group.name,
            "brokerAddr": self.address,
            "clusterName": group.cluster,
            "brokerId": str(self.broker_id),
        }
        async with group.send_lock:
            sent_ms = now_ms()
            answers: dict[str, dict[str, object]] = {}
            try:
                for connection in self._connections.values():
                    answers[connection.address] = await call_and_describe(
                        connection,
                        RequestCode.UNREGISTER_BROKER,
                        ext,
                        timeout_ms=UNREGISTER_MS,
                        counts=self.options.counts,
                    )
            finally:
                self._record("unregistered", sent_ms=sent_ms, servers=answers)

    async def _keep_connected(self) -> None:
        while True:
            for connection in self._connections.values():
                if connection.was_lost:
                    self.options.counts.connections_lost += 1
                    self._record("connection-lost", server=connection.address)
            lost = [connection for connection in self._connections.values() if not connection.is_open]
            await asyncio.gather(*(connection.connect() for connection in lost), return_exceptions=True)
            await asyncio.sleep(RECONNECT_S)

    async def _register_periodically(self) -> None:
        """At a fixed rate, independent of how long a registration takes."""
        due = time.monotonic() + FIRST_PERIOD_S
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += self.options.period_s
            await self.register("period")

    async def _finish_loops(self) -> None:
        """Waits for a registration in progress, because a name server may process 103 and 104 in any order."""
        async with self.group.send_lock:
            await self._end_loops()

    async def _end_loops(self) -> None:
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _stop(self, how: str) -> None:
        self.state = "down"
        self._record("stopped", how=how)
        if self._listener:
            self._listener.close()
            self._listener = None
        for writer in list(self._inbound):
            writer.transport.abort()
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    # -- the broker's own port

    async def _listen(self) -> None:
        host, _, port = self.address.rpartition(":")
        try:
            self._listener = await asyncio.start_server(self._serve_visitor, host, int(port))
        except OSError as error:
            allowed = (
                f"an address that it can listen on ({error.strerror or error}); --first-address chooses another one"
            )
            raise InvalidInputError("address of a simulated broker", self.address, allowed) from error

    async def _serve_visitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A name server checks whether the broker is alive, or sends a notification (905). It gets no response."""
        self._inbound.add(writer)
        try:
            with contextlib.suppress(OSError):
                while await reader.read(65536):
                    pass
        finally:
            self._inbound.discard(writer)
            writer.close()

    def _record(self, event: str, **fields: object) -> None:
        self.options.journal.record(
            event,
            cluster=self.group.cluster,
            broker=self.group.name,
            id=self.broker_id,
            address=self.address,
            life=self.life,
            **fields,
        )


def queue_numbers(queue: QueueData) -> list[int]:
    """In the journal's format: read queues, write queues, permission, flags."""
    return [queue.read_queues, queue.write_queues, queue.perm, queue.flags]


async def call_and_describe(
    connection: ServerConnection, code: int, ext: Ext, body: bytes = b"", *, timeout_ms: int, counts: Counts
) -> dict[str, object]:
    """Sends a request and returns its outcome in the journal's format."""
    try:
        response = await connection.request(code, ext, body, timeout_ms=timeout_ms)
    except PeerUnavailableError as error:
        counts.count_outcome(code, "late" if isinstance(error, LateResponseError) else "unreachable")
        return {"ms": now_ms(), "error": error.reason}
    counts.count_outcome(code, str(response.code))
    return _outcome(response)


def _outcome(response: Response) -> dict[str, object]:
    outcome: dict[str, object] = {"ms": now_ms(), "code": response.code}
    if response.remark:
        outcome["remark"] = response.remark
    return outcome | (response.ext or {})
