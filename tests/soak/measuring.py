"""Measures a long run from outside: metrics, the store's own figures, and lookups whose answers are checked."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final, Self

import httpx
import redis

from tests.protocol.plain_frames import framed
from tests.soak.plant import KEPT, Plant, Worker, store_client
from tests.soak.slopes import Point

LOOKUP_EVERY_S: Final = 0.1
TIMEOUT_S: Final = 3.0
TOPIC_NOT_EXIST: Final = 17
STREAMS: Final = ("changes", "pulse", "refusals")


@dataclass
class Lookups:
    """Looks up the steady topics at one worker, over one connection, in a thread of its own."""

    worker: Worker
    expected: Mapping[str, frozenset[str]]
    """The steady topics and the brokers that their routes must have."""
    results: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _latencies_ms: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _connection: socket.socket | None = None

    def start(self) -> Self:
        self._thread = threading.Thread(target=self._run, name=f"lookups at {self.worker.name}")
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def latencies_ms(self) -> list[float]:
        """Those since the last call."""
        taken, self._latencies_ms = self._latencies_ms, []
        return taken

    def _run(self) -> None:
        topics, number = sorted(self.expected), 0
        while not self._stop.wait(LOOKUP_EVERY_S):
            number += 1
            self._look_up(topics[number % len(topics)], number)
        self._disconnect()

    def _look_up(self, topic: str, number: int) -> None:
        was_down = self.worker.down
        try:
            began = time.perf_counter()
            code, body = self._request(topic, number)
            latency_ms = 1000 * (time.perf_counter() - began)
        except (OSError, EOFError) as error:
            self._disconnect()
            down = was_down or self.worker.down
            self.results["worker down" if down else "failed"] += 1
            if not down:
                self.wrong.append(f"{self.worker.name}: lookup of {topic} failed: {error!r}")
            return
        self.results[f"code {code}"] += 1
        if code == 0:
            self._latencies_ms.append(latency_ms)
            found = {group["brokerName"] for group in json.loads(body)["brokerDatas"]}
            if missing := self.expected[topic] - found:
                self.results["incomplete"] += 1
                self.wrong.append(f"{self.worker.name}: the route of {topic} lacks {sorted(missing)}")
        elif code == TOPIC_NOT_EXIST:
            self.wrong.append(f"{self.worker.name}: {topic} does not exist")

    def _request(self, topic: str, number: int) -> tuple[int, bytes]:
        if self._connection is None:
            host, _, port = self.worker.address.rpartition(":")
            self._connection = socket.create_connection((host, int(port)), TIMEOUT_S)
        header = {"code": 105, "flag": 0, "language": "JAVA", "opaque": number, "version": 479}
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        self._connection.sendall(framed(json.dumps({**header, "extFields": ext}).encode()))
        frame = self._receive(struct.unpack(">i", self._receive(4))[0])
        end = 4 + (struct.unpack(">i", frame[:4])[0] & 0xFFFFFF)
        return json.loads(frame[4:end])["code"], frame[end:]

    def _receive(self, size: int) -> bytes:
        assert self._connection
        received = b""
        while len(received) < size:
            part = self._connection.recv(size - len(received))
            if not part:
                raise EOFError("the connection was closed")
            received += part
        return received

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None


@dataclass
class Samples:
    """The measurements: name, line, points."""

    began: float = field(default_factory=time.monotonic)
    lines: dict[tuple[str, str], list[Point]] = field(default_factory=dict)

    def now(self) -> float:
        return time.monotonic() - self.began

    def add(self, name: str, line: str, value: float) -> None:
        self.lines.setdefault((name, line), []).append((self.now(), value))

    async def take(self, plant: Plant, lookups: Mapping[str, Lookups]) -> None:
        """One sample of everything that can be reached."""
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
            for worker in plant.workers:
                if worker.name in KEPT and not worker.down:
                    with contextlib.suppress(httpx.TransportError):
                        self._add_metrics(worker.name, (await http.get(f"{worker.process.admin}/metrics")).text)
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            await self._add_store(plant)
        for name in KEPT:
            latencies = lookups[name].latencies_ms()
            if len(latencies) >= 20:
                self.add("lookup_p50_ms", name, median(latencies))
                self.add("lookup_p99_ms", name, quantiles(latencies, n=100)[98])

    def _add_metrics(self, worker: str, text: str) -> None:
        found: dict[str, float] = {}
        for name, value in metric_values(text):
            found[name] = found.get(name, 0.0) + value
        self.add("memory_mib", worker, found["process_resident_memory_bytes"] / 2**20)
        self.add("open_files", worker, found["process_open_fds"])
        self.add("other_files", worker, found["process_open_fds"] - found["routebook_connections"])
        self.add("tasks", worker, found["routebook_tasks"])
        self.add("waiting_requests", worker, found["routebook_remoting_waiting_requests"])
        self.add("feed_lag_changes", worker, found["routebook_feed_lag_changes"])

    async def _add_store(self, plant: Plant) -> None:
        async with store_client(plant) as client:
            info: dict[str, Any] = await client.info()
            keys = [f"rb:{{default}}:{name}" for name in STREAMS]
            sizes = [int(await client.memory_usage(key, samples=0) or 0) for key in keys]
        self.add("store_mib", "all other data", (info["used_memory_dataset"] - sum(sizes)) / 2**20)
        self.add("store_mib", "bounded streams", sum(sizes) / 2**20)
        self.add("store_resident_mib", "store", info["used_memory_rss"] / 2**20)
        self.add("store_connections", "store", info["connected_clients"])


def metric_values(exposition: str) -> Iterator[tuple[str, float]]:
    """Name without labels, and value, of each line."""
    for line in exposition.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name.partition("{")[0], float(value)
