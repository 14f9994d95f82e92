"""The bytes by which a broker announces itself, as 5.x writes them.

Brokers of one name: what they share, and in which order they speak.

One broker: it listens at its own address, keeps a line to each name server and registers over all at once.
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
from routebook.model.broker import DataVersion
from routebook.model.topic import QueueData
from routebook.protocol.command import Ext, RequestCode, Response
from routebook.protocol.headers import write_fields
from routebook.simulate.client import LateResponseError, ServerConnection
from routebook.simulate.records import Counts, Journal, now_ms

_CRC_BITS = 0x7FFFFFFF
"""Java keeps 31 of them."""


def registration_body(version: DataVersion, topics: Mapping[str, QueueData]) -> bytes:
    written = {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }
    wrapper = {
        "dataVersion": written,
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
    """The master's, which its slaves copy; it survives all of them, as a broker's files do."""

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
        """Of a full registration: the same bytes until something changes, as a broker's are."""
        if self._body_version != self.version:
            self._body = registration_body(self.version, self.topics)
            self._body_version = self.version
        return self._body


@dataclass
class GroupState:
    name: str
    cluster: str
    table: TopicTable
    wire: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while anything is said of this group, by whichever of its members or by an operator: so the journal's order
    is the one in which name servers heard it.
    """
    trouble: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time. Outside `wire`."""


FIRST_PERIOD_S: Final = 10.0
"""From the start to the first periodic registration."""
PERIOD_LIMITS_S: Final = (10.0, 60.0)
SCAN_S: Final = 3.0
"""How often lost lines are made anew."""
REGISTER_MS: Final = 24_000
UNREGISTER_MS: Final = 3_000

State = Literal["down", "up", "silent"]


@dataclass
class BrokerOptions:
    """What all brokers of a simulation have in common."""

    name_servers: Sequence[str]
    period_s: float
    timeout_ms: int | None
    """Sent with registrations; None: the name server's own (120 s)."""
    journal: Journal
    counts: Counts

    def __post_init__(self) -> None:
        self.period_s = clamp_period(self.period_s)


def clamp_period(period_s: float) -> float:
    """As the reference does with any other `registerNameServerPeriod`."""
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
    """Counts its starts: what the journal calls one stay."""
    _lines: dict[str, ServerConnection] = field(default_factory=dict)
    _listener: asyncio.Server | None = None
    _visitors: set[asyncio.StreamWriter] = field(default_factory=set)
    _loops: list[asyncio.Task[None]] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)
    """Data versions that it has registered in full in this life: a repeat need not be written out."""

    async def start(self, reason: str) -> None:
        """Returns when it has registered, or has tried to."""
        await self._listen()
        self.life += 1
        self.state = "up"
        self._told.clear()
        self._lines = {address: ServerConnection(address) for address in self.options.name_servers}
        self._tell("started", reason=reason)
        self._loops = [asyncio.create_task(self._keep_lines())]
        await self.register(reason)
        self._loops.append(asyncio.create_task(self._register_periodically()))

    async def unregister_and_stop(self) -> None:
        """In order: 104 to each name server, one after the other."""
        await self._finish_loops()
        if self.state == "up":
            await self._unregister()
        await self._stop("orderly")

    async def crash(self) -> None:
        """As kill -9: nobody listens any more, and every connection ends without a word."""
        await self._end_loops()
        await self._stop("crash")

    async def become_silent(self) -> None:
        """Connections stay, and its port accepts: it only says nothing any more."""
        await self._finish_loops()
        self.state = "silent"
        self._tell("silence-began")

    async def resume(self) -> None:
        self.state = "up"
        self._tell("silence-ended")
        self._told.clear()
        self._loops = [asyncio.create_task(self._keep_lines())]
        await self.register("silence-ended")
        self._loops.append(asyncio.create_task(self._register_periodically()))

    async def register(self, reason: str, topics: Mapping[str, QueueData] | None = None) -> bool:
        """Whether a name server took it. With `topics`: these alone, as after a topic was made."""
        async with self.group.wire:
            return await self.register_now(reason, topics)

    async def register_now(self, reason: str, topics: Mapping[str, QueueData] | None = None) -> bool:
        """For who holds the group's `wire`."""
        if self.state != "up":
            return False
        group, version = self.group, self.group.table.version
        said = group.table.topics if topics is None else dict(topics)
        body = group.table.body() if topics is None else registration_body(version, said)
        ext = registration_ext(
            body,
            cluster=group.cluster,
            broker=group.name,
            broker_id=self.broker_id,
            address=self.address,
            timeout_ms=self.options.timeout_ms,
        )
        repeats = topics is None and version.pack() in self._told
        sent_ms = now_ms()
        answers: dict[str, dict[str, object]] = {}
        try:
            await self._ask_all(RequestCode.REGISTER_BROKER, ext, body, REGISTER_MS, answers)
        finally:
            # Also when it is cut off: a name server may have heard it.
            self._tell(
                "registered",
                reason=reason,
                sent_ms=sent_ms,
                full=topics is None,
                repeats=repeats,
                data_version=[version.state_version, version.timestamp, version.counter],
                **({} if repeats else {"topics": {name: queue_numbers(queue) for name, queue in said.items()}}),
                servers=answers,
            )
        taken = any(answer.get("code") == 0 for answer in answers.values())
        if taken and topics is None:
            self._told.add(version.pack())
        return taken

    # -- lines

    async def _ask_all(
        self, code: int, ext: Ext, body: bytes, timeout_ms: int, answers: dict[str, dict[str, object]]
    ) -> None:
        async def ask(line: ServerConnection) -> None:
            answers[line.address] = await call_and_describe(
                line, code, ext, body, timeout_ms=timeout_ms, counts=self.options.counts
            )

        async with asyncio.TaskGroup() as asking:
            for line in self._lines.values():
                asking.create_task(ask(line))

    async def _unregister(self) -> None:
        group = self.group
        ext = {
            "brokerName": group.name,
            "brokerAddr": self.address,
            "clusterName": group.cluster,
            "brokerId": str(self.broker_id),
        }
        async with group.wire:
            sent_ms = now_ms()
            answers: dict[str, dict[str, object]] = {}
            try:
                for line in self._lines.values():
                    answers[line.address] = await call_and_describe(
                        line, RequestCode.UNREGISTER_BROKER, ext, timeout_ms=UNREGISTER_MS, counts=self.options.counts
                    )
            finally:
                self._tell("unregistered", sent_ms=sent_ms, servers=answers)

    async def _keep_lines(self) -> None:
        while True:
            for line in self._lines.values():
                if line.was_lost:
                    self.options.counts.connections_lost += 1
                    self._tell("connection-lost", server=line.address)
            missing = [line for line in self._lines.values() if not line.is_open]
            await asyncio.gather(*(line.connect() for line in missing), return_exceptions=True)
            await asyncio.sleep(SCAN_S)

    async def _register_periodically(self) -> None:
        """At a fixed rate, however long one takes."""
        due = time.monotonic() + FIRST_PERIOD_S
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += self.options.period_s
            await self.register("period")

    async def _finish_loops(self) -> None:
        """A registration on its way comes home first: a name server may take 103 and 104 in any order."""
        async with self.group.wire:
            await self._end_loops()

    async def _end_loops(self) -> None:
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _stop(self, how: str) -> None:
        self.state = "down"
        self._tell("stopped", how=how)
        if self._listener:
            self._listener.close()
            self._listener = None
        for writer in list(self._visitors):
            writer.transport.abort()
        lines, self._lines = self._lines, {}
        await asyncio.gather(*(line.close() for line in lines.values()))

    # -- its own port

    async def _listen(self) -> None:
        host, _, port = self.address.rpartition(":")
        try:
            self._listener = await asyncio.start_server(self._serve_visitor, host, int(port))
        except OSError as error:
            allowed = f"one to listen on, but: {error.strerror or error}; --first-address chooses others"
            raise InvalidInputError("address of a simulated broker", self.address, allowed) from error

    async def _serve_visitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A name server looks whether it lives, or tells something (905). Nobody is answered."""
        self._visitors.add(writer)
        try:
            with contextlib.suppress(OSError):
                while await reader.read(65536):
                    pass
        finally:
            self._visitors.discard(writer)
            writer.close()

    def _tell(self, event: str, **fields: object) -> None:
        self.options.journal.tell(
            event,
            cluster=self.group.cluster,
            broker=self.group.name,
            id=self.broker_id,
            address=self.address,
            life=self.life,
            **fields,
        )


def queue_numbers(queue: QueueData) -> list[int]:
    """As the journal has it: read and write queues, permission, flags."""
    return [queue.read_queues, queue.write_queues, queue.perm, queue.flags]


async def call_and_describe(
    line: ServerConnection, code: int, ext: Ext, body: bytes = b"", *, timeout_ms: int, counts: Counts
) -> dict[str, object]:
    """What the journal says of one name server's answer."""
    try:
        response = await line.request(code, ext, body, timeout_ms=timeout_ms)
    except PeerUnavailableError as error:
        counts.told(code, "late" if isinstance(error, LateResponseError) else "unreachable")
        return {"ms": now_ms(), "error": error.reason}
    counts.told(code, str(response.code))
    return _answer(response)


def _answer(response: Response) -> dict[str, object]:
    found: dict[str, object] = {"ms": now_ms(), "code": response.code}
    if response.remark:
        found["remark"] = response.remark
    return found | (response.ext or {})
