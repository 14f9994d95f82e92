"""Brokers and clients of the fault laboratory, and their connections. They record every request with its answer."""

import asyncio
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final, Protocol, Self

from tests.faults.recording import Death, Exchange, Incarnation, Port, Recording
from tests.remoting.port import registration_body, topic
from tests.runtime.running import Running
from tests.support.fault_proxy import FaultProxy
from tests.support.peers import Peer

CLUSTER: Final = "east"
SHARED_TOPIC: Final = "all"
ANSWER_S: Final = 3.0
"""RocketMQ's clients wait this long for an answer."""
MARGIN_S: Final = 1.0
"""Allowed beyond each bound because the machine is shared and answers are sampled."""

_LINKS = iter(range(1, 1 << 60))


@dataclass
class Worker:
    name: str
    process: Running
    proxy: FaultProxy | None
    alive: bool = True

    @property
    def remoting(self) -> str:
        return self.process.remoting

    @property
    def http(self) -> str:
        return self.process.http.removeprefix("http://")


class Surroundings(Protocol):
    """What brokers and clients need of their laboratory."""

    random: Random
    settings: dict[str, int | str]
    recording: Recording
    churns: bool
    brokers: "dict[str, SimulatedBroker]"

    @property
    def running_workers(self) -> list[Worker]: ...
    @property
    def is_stopping(self) -> bool: ...


class Link:
    """One connection of a client or broker to one worker."""

    def __init__(self, worker: Worker, peer: Peer) -> None:
        self.worker = worker
        self.peer = peer
        self.number = next(_LINKS)

    @classmethod
    async def open(cls, worker: Worker, port: Port) -> Self:
        async with asyncio.timeout(ANSWER_S):
            return cls(worker, await Peer.connect(worker.remoting if port == "remoting" else worker.http))

    async def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """An HTTP request over this connection: status, headers with names in lower case, body."""
        self.peer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = (await self.peer.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await self.peer.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    def close(self) -> None:
        self.peer.abort()


FAILURES: Final = (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError)


class SimulatedBroker:
    """A broker over the remoting port: it registers once in each period over one connection, and uses the next worker
    if that fails. While the laboratory churns, one of `1 / churn` registrations changes the queues of all its topics.
    """

    def __init__(
        self,
        laboratory: Surroundings,
        name: str,
        *,
        number: int,
        period_s: float = 0.5,
        churn: float = 0.2,
        own: int = 2,
        reconnects: bool = False,
    ) -> None:
        """`reconnects`: it closes its connection after each registration, and lives on."""
        self.name = name
        self.period_s = period_s
        self.churn = churn
        self.topics = (SHARED_TOPIC, *(f"{name}-own-{n}" for n in range(own)))
        self.reconnects = reconnects
        self.generation = 1
        self.lives = True
        self.is_registering = False
        self.registered = asyncio.Event()
        self.planned = 0.0
        """Number of registrations that its plan contains so far."""
        self._laboratory = laboratory
        self._number = number
        self._turn = number
        self._link: Link | None = None
        self._listener: asyncio.Server | None = None
        self._address = ""
        self._paused_until = 0.0
        self._awake = asyncio.Event()
        self._awake.set()

    @property
    def worker(self) -> Worker | None:
        """The worker to which it is connected."""
        return self._link.worker if self._link else None

    async def run(self) -> None:
        await self._listen()
        # Brokers do not register in step.
        due = time.monotonic() + self._laboratory.random.random() * self.period_s
        while not self._laboratory.is_stopping:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            if self._paused_until > time.monotonic():
                due = self._paused_until
                continue
            due = max(due + self.period_s, time.monotonic())
            if not self._awake.is_set():
                await self._awake.wait()
                due = time.monotonic() + self.period_s
            self.is_registering = True
            try:
                await self.register()
            finally:
                self.is_registering = False

    async def register(self) -> bool:
        """Returns whether the registration was acknowledged. A worker that fails is replaced by the next one at the
        next registration.
        """
        laboratory = self._laboratory
        if laboratory.churns and laboratory.random.random() < self.churn:
            self.generation += 1
        self.planned += 1
        incarnation = Incarnation(self._address, self.generation)
        sent, code, answered, worker, number = time.monotonic(), None, None, "", 0
        try:
            link = await self._connected()
            worker, number, sent = link.worker.name, link.number, time.monotonic()
            async with asyncio.timeout(ANSWER_S):
                answer = await link.peer.ask(103, self._ext(), self._body())
            code, answered = answer.code, time.monotonic()
        except FAILURES:
            self._disconnect()
        laboratory.recording.exchanges.append(
            Exchange(
                "registration",
                "remoting",
                worker,
                number,
                self.name,
                sent,
                answered,
                code,
                incarnation=incarnation,
                topics=self.topics,
            )
        )
        if code == 0:
            self.registered.set()
        if self.reconnects:
            self._disconnect()
        return code == 0

    def kill(self, *, bound_s: float | None = None) -> None:
        """Its connection is reset and its address refuses, as when its process dies. `bound_s`: within which all
        workers have to remove it; by default the grace time and the margin.
        """
        grace_s = float(self._laboratory.settings["connection_grace_ms"]) / 1000
        self._stop(grace_s + MARGIN_S if bound_s is None else bound_s)
        self._disconnect()
        if self._listener:
            self._listener.close()

    def fall_silent(self, *, bound_s: float | None = None) -> None:
        """It sends nothing more, and its connection stays open. By default it has to be removed within its timeout, one
        scan and the margin.
        """
        settings = self._laboratory.settings
        timeout_ms = int(settings["broker_timeout_ms"]) + int(settings["scan_not_active_broker_interval_ms"])
        self._stop(timeout_ms / 1000 + MARGIN_S if bound_s is None else bound_s)

    def pause(self, seconds: float) -> None:
        """Its next registrations are late, as those of a broker with a longer period."""
        self._paused_until = time.monotonic() + seconds

    async def revive(self) -> None:
        self.generation += 1
        self.lives = True
        if self._listener and not self._listener.is_serving():
            await self._listen()
        self.registered.clear()
        self._awake.set()

    def close(self) -> None:
        self._disconnect()
        if self._listener:
            self._listener.close()

    def _stop(self, bound_s: float) -> None:
        self._awake.clear()
        self.lives = False
        self._laboratory.recording.deaths.append(Death(self.name, time.monotonic(), bound_s))

    async def _listen(self) -> None:
        host, _, port = (self._address or f"127.0.{5 + self._number // 250}.{self._number % 250 + 1}:0").rpartition(":")
        self._listener = await asyncio.start_server(lambda _, writer: writer.close(), host, int(port))
        self._address = f"{host}:{self._listener.sockets[0].getsockname()[1]}"

    async def _connected(self) -> Link:
        if self._link and not self._link.peer.reader.at_eof():
            return self._link
        self._disconnect()
        workers = self._laboratory.running_workers
        worker = workers[self._turn % len(workers)]
        self._turn += 1
        self._link = await Link.open(worker, "remoting")
        return self._link

    def _disconnect(self) -> None:
        if self._link:
            self._link.close()
            self._link = None

    def _ext(self) -> dict[str, str]:
        ext = {"clusterName": CLUSTER, "brokerName": self.name, "brokerAddr": self._address, "brokerId": "0"}
        return ext | {"haServerAddr": self._address, "enableActingMaster": "false"}

    def _body(self) -> bytes:
        queues = {"readQueueNums": self.generation, "writeQueueNums": self.generation}
        return registration_body(*(topic(name, **queues) for name in self.topics), counter=self.generation)


class LookupClient:
    """Looks up random topics at a fixed rate over one connection. It repeats a lookup that got no answer once, at the
    next worker.
    """

    def __init__(self, laboratory: Surroundings, port: Port, per_second: float, *, first: int) -> None:
        self.port = port
        self.per_second = per_second
        self.started_at = time.monotonic()
        self.failed = 0
        """Lookups without an answer, also when repeated."""
        self._laboratory = laboratory
        self._turn = first
        self._link: Link | None = None
        self._ended = asyncio.Event()

    @property
    def worker(self) -> Worker | None:
        """The worker to which it is connected."""
        return self._link.worker if self._link else None

    async def run(self) -> None:
        laboratory = self._laboratory
        self.started_at = due = time.monotonic()
        try:
            while not laboratory.is_stopping:
                due += 1 / self.per_second
                await asyncio.sleep(max(due - time.monotonic(), 0))
                broker = laboratory.random.choice(list(laboratory.brokers.values()))
                await self.look_up(laboratory.random.choice(broker.topics))
        finally:
            self._ended.set()

    async def stopped(self) -> None:
        await self._ended.wait()

    async def look_up(self, name: str) -> Exchange:
        for attempt in (1, 2):
            exchange = await self._ask(name, attempt)
            self._laboratory.recording.exchanges.append(exchange)
            if exchange.code is not None:
                return exchange
        self.failed += 1
        return exchange

    def close(self) -> None:
        if self._link:
            self._link.close()
            self._link = None

    async def _ask(self, name: str, attempt: int) -> Exchange:
        sent, link = time.monotonic(), self._link
        try:
            link = await self._connected()
            async with asyncio.timeout(ANSWER_S):
                sent = time.monotonic()
                if self.port == "remoting":
                    return await self._ask_remoting(link, name, sent, attempt)
                return await self._ask_http(link, name, sent, attempt)
        except FAILURES:
            self.close()
            worker, number = (link.worker.name, link.number) if link else ("", 0)
            return Exchange("lookup", self.port, worker, number, name, sent, attempt=attempt)

    @staticmethod
    async def _ask_remoting(link: Link, name: str, sent: float, attempt: int) -> Exchange:
        answer = await link.peer.ask(105, {"topic": name, "acceptStandardJsonOnly": "true"})
        return Exchange(
            "lookup",
            "remoting",
            link.worker.name,
            link.number,
            name,
            sent,
            time.monotonic(),
            answer.code,
            attempt,
            _incarnations(answer.body) if answer.code == 0 else {},
        )

    @staticmethod
    async def _ask_http(link: Link, name: str, sent: float, attempt: int) -> Exchange:
        status, headers, body = await link.get(f"/v1/routes/{name}")
        return Exchange(
            "lookup",
            "http",
            link.worker.name,
            link.number,
            name,
            sent,
            time.monotonic(),
            status,
            attempt,
            _incarnations(body) if status == 200 else {},
            version=int(headers["x-routebook-version"]) if "x-routebook-version" in headers else None,
            history=headers.get("x-routebook-history"),
            stale="x-routebook-stale-seconds" in headers,
        )

    async def _connected(self) -> Link:
        if self._link and not self._link.peer.reader.at_eof() and not self._link.peer.writer.is_closing():
            return self._link
        self.close()
        workers = self._laboratory.running_workers
        worker = workers[self._turn % len(workers)]
        self._turn += 1
        self._link = await Link.open(worker, self.port)
        return self._link


@lru_cache(maxsize=4096)
def _incarnations(body: bytes) -> dict[str, Incarnation]:
    """The brokers in the body of a route, in standard JSON."""
    route = json.loads(body)
    addresses = {group["brokerName"]: group["brokerAddrs"].get("0", "") for group in route["brokerDatas"]}
    return {
        queues["brokerName"]: Incarnation(addresses.get(queues["brokerName"], ""), queues["readQueueNums"])
        for queues in route["queueDatas"]
    }
