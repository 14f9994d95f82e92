"""Brokers that register periodically with real workers, readers that look up their topics, and what both observed.

The fleet changes all the time: topics are added, brokers come and go. Some brokers stay the same from start to end.
Every broker listens at its address, so that a worker may dial it.
"""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.remoting.port import registration_body
from tests.runtime.running import Running
from tests.support.peers import Answer, Peer
from tests.support.waiting import until

SHARED_TOPIC = "orders"
"""Every broker has it."""
ANSWER_TIMEOUT_S = 5.0
RETRY_S = 0.2
VISIBLE_EVERYWHERE_S = 1.0
LIVING_TIMEOUT_MS = 60_000
TEMPORARY_TIMEOUT_PERIODS = 4
"""As brokers do: 120 s with a period of 30 s."""


@dataclass(frozen=True)
class Write:
    """A registration or an unregistration, and its answer."""

    broker: str
    kind: str
    changes: bool
    """False if the same registration was acknowledged before."""
    sent: float
    answered: float
    code: int | None
    """None: no answer."""


@dataclass(frozen=True)
class Known:
    """A topic that a worker has acknowledged or served, so that it must never be unknown to that worker again."""

    topic: str
    broker: "FleetBroker"


@dataclass
class Observations:
    """What brokers and readers were answered, over the whole run."""

    writes: list[Write] = field(default_factory=list)
    lookups: Counter[str] = field(default_factory=Counter)
    """By code; `lost` without an answer."""
    violations: list[str] = field(default_factory=list)
    slowest_write_s: float = 0.0


class FleetBroker:
    """One broker with one connection to one worker at a time. The next worker follows when a connection is lost."""

    def __init__(self, fleet: "ChurningFleet", name: str, *, timeout_ms: int) -> None:
        self.name = name
        self.topics = [SHARED_TOPIC, f"own-{name}"]
        self.is_living = True
        self.acknowledged: tuple[str, ...] = ()
        """The topics of the last registration that was acknowledged."""
        self._fleet = fleet
        self._timeout_ms = timeout_ms
        self._worker = next(fleet.turns)
        self._peer: Peer | None = None
        self._changed = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self.address = ""

    async def listen(self) -> None:
        number = next(self._fleet.hosts)
        host = f"127.0.{30 + number // 250}.{1 + number % 250}"
        self._listener = await asyncio.start_server(lambda _, writer: writer.close(), host, 0)
        self.address = f"{host}:{self._listener.sockets[0].getsockname()[1]}"

    async def run(self) -> None:
        """Registers at once, once in each period, and after each change, until it leaves."""
        while self.is_living:
            self._changed.clear()
            if not await self.register():
                await asyncio.sleep(RETRY_S)
                if self._peer is None:
                    continue  # On a new connection a broker registers at once.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._fleet.period_s)

    def add_topic(self, topic: str) -> None:
        self.topics.append(topic)
        self._changed.set()

    async def register(self) -> bool:
        content = tuple(self.topics)
        body = registration_body(*content, counter=len(content))
        answer = await self._request(103, "registration", content != self.acknowledged, body)
        if answer is None or answer.code != 0:
            return False
        self.acknowledged = content
        if self.is_living:
            self._fleet.note_known(self._worker, self, content)
        return True

    async def leave(self, running: asyncio.Task[None]) -> None:
        """Unregisters after the registration that is on its way, and stops listening."""
        self.is_living = False
        self._fleet.forget(self)
        self._changed.set()
        await running
        await self._request(104, "unregistration", True, b"")
        self.close()

    def close(self) -> None:
        if self._peer:
            self._peer.abort()
        if self._listener:
            self._listener.close()

    async def _request(self, code: int, kind: str, changes: bool, body: bytes) -> Answer | None:
        ext = {
            "clusterName": "east",
            "brokerName": self.name,
            "brokerAddr": self.address,
            "brokerId": "0",
            "haServerAddr": self.address,
            "enableActingMaster": "false",
            "heartbeatTimeoutMillis": str(self._timeout_ms),
        }
        sent = time.monotonic()
        answer: Answer | None = None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if self._peer is None:
                    host, _, _ = self.address.rpartition(":")
                    self._peer = await Peer.connect(self._fleet.workers[self._worker].remoting, local_addr=(host, 0))
                answer = await self._peer.ask(code, ext, body)
        except (OSError, EOFError, TimeoutError):
            if self._peer:
                self._peer.abort()
            self._peer = None
            self._worker = next(self._fleet.turns)
        now = time.monotonic()
        self._fleet.note_write(Write(self.name, kind, changes, sent, now, answer.code if answer else None))
        return answer


class ChurningFleet:
    """`async with ChurningFleet(workers, …) as fleet:` runs brokers, readers and changes until the end of the block."""

    def __init__(
        self, workers: Sequence[Running], rng: random.Random, *, brokers: int = 8, period_s: float = 3.0
    ) -> None:
        self.workers = workers
        self.period_s = period_s
        self.observed = Observations()
        self.turns = itertools.cycle(range(len(workers)))
        self.hosts = itertools.count()
        self.suspended: set[int] = set()
        """Workers that the test has stopped: their readers may wait."""
        self.churns = asyncio.Event()
        """Cleared: the brokers keep registering what they have."""
        self.churns.set()
        self._rng = rng
        self._count = brokers
        self._numbers = itertools.count()
        self._brokers: dict[str, FleetBroker] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._known: list[dict[str, Known]] = [{} for _ in workers]
        self._readers: dict[int, Peer] = {}
        """By worker."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for number in range(self._count):
            await self._add(f"permanent-{number}", LIVING_TIMEOUT_MS)
        await until(lambda: all(broker.acknowledged for broker in self._brokers.values()))
        await asyncio.sleep(VISIBLE_EVERYWHERE_S)
        for worker in range(len(self.workers)):
            self._spawn(self._look_up(worker))
            self._spawn(self._watch_versions(worker))
        self._spawn(self._change_topics())
        self._spawn(self._come_and_go())
        return self

    async def __aexit__(self, *_error: object) -> None:
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for broker in self._brokers.values():
            broker.close()
        for reader in self._readers.values():
            reader.abort()
        if failed := [result for result in results if isinstance(result, Exception)]:
            raise failed[0]

    @property
    def living(self) -> dict[str, FleetBroker]:
        return {name: broker for name, broker in self._brokers.items() if broker.is_living}

    def note_write(self, write: Write) -> None:
        self.observed.writes.append(write)
        if write.kind == "registration" and write.code is not None:
            self.observed.slowest_write_s = max(self.observed.slowest_write_s, write.answered - write.sent)

    def note_known(self, worker: int, broker: FleetBroker, topics: Sequence[str]) -> None:
        for topic in topics:
            if topic != SHARED_TOPIC:
                self._known[worker].setdefault(topic, Known(topic, broker))

    def forget(self, broker: FleetBroker) -> None:
        for known in self._known:
            for topic in broker.topics:
                known.pop(topic, None)

    def lost_writes(self, since: float, until: float) -> list[Write]:
        """Acknowledged changes that were sent after `since` and answered before `until`."""
        return [
            write
            for write in self.observed.writes
            if write.changes and write.code == 0 and write.sent >= since and write.answered <= until
        ]

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _add(self, name: str, timeout_ms: int) -> FleetBroker:
        broker = FleetBroker(self, name, timeout_ms=timeout_ms)
        await broker.listen()
        self._brokers[name] = broker
        self._running[name] = asyncio.create_task(broker.run())
        return broker

    async def _change_topics(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.1, 0.4))
            await self.churns.wait()
            broker = self._rng.choice(sorted(self.living.values(), key=lambda broker: broker.name))
            broker.add_topic(f"topic-{next(self._numbers)}")

    async def _come_and_go(self) -> None:
        """At most four temporary brokers at a time."""
        temporary: list[str] = []
        while True:
            await asyncio.sleep(self._rng.uniform(0.3, 0.9))
            await self.churns.wait()
            if len(temporary) == 4 or (temporary and self._rng.random() < 0.4):
                name = temporary.pop(self._rng.randrange(len(temporary)))
                await self._brokers.pop(name).leave(self._running.pop(name))
            else:
                name = f"temporary-{next(self._numbers)}"
                temporary.append(name)
                await self._add(name, int(TEMPORARY_TIMEOUT_PERIODS * self.period_s * 1000))

    # -- readers

    async def _look_up(self, worker: int) -> None:
        """Over port 9876: topics that any worker has acknowledged, and the one that all brokers have."""
        observed, readers = self.observed, self._readers
        while True:
            await asyncio.sleep(0.004)
            source = self._rng.randrange(len(self._known))
            topics = self._known[source]
            known = topics[self._rng.choice(list(topics))] if topics and self._rng.random() < 0.8 else None
            topic = known.topic if known else SHARED_TOPIC
            was_known = topic == SHARED_TOPIC or topic in self._known[worker]
            permanent = [broker for broker in self.living.values() if broker.name.startswith("permanent-")]
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    if worker not in readers:
                        readers[worker] = await Peer.connect(self.workers[worker].remoting)
                    answer = await readers[worker].ask(105, {"topic": topic})
            except (OSError, EOFError, TimeoutError) as error:
                if worker not in self.suspended:
                    observed.violations.append(f"no answer to a lookup at worker {worker}: {error!r}")
                observed.lookups["lost"] += 1
                if reader := readers.pop(worker, None):
                    reader.abort()
                continue
            observed.lookups[str(answer.code)] += 1
            expected = [known.broker] if known else permanent
            expected = [broker for broker in expected if broker.is_living]
            if answer.code == 0:
                missing = [broker.name for broker in expected if f'"{broker.name}"'.encode() not in answer.body]
                if missing and was_known:
                    observed.violations.append(f"{topic} without {missing} at worker {worker}")
                elif known is not None and expected and not missing:
                    self.note_known(worker, known.broker, [topic])
            elif was_known and expected:
                observed.violations.append(f"code {answer.code} for the known topic {topic} at worker {worker}")

    async def _watch_versions(self, worker: int) -> None:
        """Over one HTTP connection: within a history no version falls, and no history returns."""
        async with _HttpConnection(self.workers[worker].http) as connection:
            history, version, former = "", 0, set[str]()
            while True:
                await asyncio.sleep(0.02)
                headers = await connection.get_headers(f"/v1/routes/{SHARED_TOPIC}")
                if "x-routebook-version" not in headers:
                    continue
                now = headers["x-routebook-history"], int(headers["x-routebook-version"])
                if now[0] in former or (now[0] == history and now[1] < version):
                    self.observed.violations.append(f"worker {worker} went from {history}/{version} back to {now}")
                if now[0] != history:
                    former.add(history)
                history, version = now


class _HttpConnection:
    """One connection that is kept open, and waits for as long as its worker is suspended."""

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").rpartition(":")

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._writer.transport.abort()

    async def get_headers(self, path: str) -> dict[str, str]:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value for name, _, value in lines}
        await self._reader.readexactly(int(headers.get("content-length", "0")))
        return headers
