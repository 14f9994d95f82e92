"""A service in processes of its own, the healthy brokers that it has to keep, and what it costs."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

from tests.remoting.port import BROKER_A, registration_body
from tests.runtime.running import Running
from tests.support.peers import Answer, Peer

MIB = 1024 * 1024
ATTACKER = ("127.0.0.66", 0)
"""Local address of the attacking connections, so that they do not share the budgets of the brokers."""


@asynccontextmanager
async def attacked_service(store_url: str, namespace: str, folder: Path, *flags: str) -> AsyncIterator[Running]:
    command = ("serve", "--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1", *flags)
    service = Running(*command, folder=folder)
    await asyncio.to_thread(service.__enter__)
    try:
        yield service
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


async def connect(service: Running, *, source: tuple[str, int] | None = None) -> Peer:
    return await Peer.connect(service.remoting, local_addr=source)


async def connect_http(service: Running, *, source: tuple[str, int] | None = ATTACKER) -> Peer:
    return await Peer.connect(f"127.0.0.1:{urlsplit(service.http).port}", local_addr=source)


class HighestMemory:
    """Observes the memory of all processes of the service until the end of the block.

    The processes are listed once: to list those of the machine twenty times a second takes a sixth of a processor, and
    lengthens the lookups that are measured at the same time.
    """

    def __init__(self, service: Running) -> None:
        self._processes = [psutil.Process(pid) for pid in (service.process.pid, *service.descendants())]
        self.at_start = self.highest = self._resident_mib()

    async def __aenter__(self) -> "HighestMemory":
        self._task = asyncio.create_task(self._observe())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._task.cancel()
        self._note()

    @property
    def growth(self) -> float:
        return self.highest - self.at_start

    def _note(self) -> None:
        self.highest = max(self.highest, self._resident_mib())

    def _resident_mib(self) -> float:
        total = 0
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / MIB

    async def _observe(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self._note()


class HealthyBroker:
    """Sends the same registration again and again over one connection, as every real broker does."""

    def __init__(self, peer: Peer, number: int, *, timeout_ms: int) -> None:
        self.name = f"healthy-{number}"
        self.topic = f"Topic-of-{self.name}"
        self._peer = peer
        self._ext = BROKER_A | {
            "brokerName": self.name,
            "brokerAddr": f"127.0.0.{100 + number}:10911",
            "heartbeatTimeoutMillis": str(timeout_ms),
        }
        self._body = registration_body(self.topic, f"another-{self.name}")
        self.codes: list[int] = []
        self.longest_s = 0.0

    async def register(self) -> Answer:
        began = time.monotonic()
        answer = await self._peer.ask(103, self._ext, self._body)
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.codes.append(answer.code)
        return answer

    async def keep_registering(self, every_s: float) -> None:
        while True:
            await self.register()
            await asyncio.sleep(every_s)


def block(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def inflating_registration(topics: int, *, name: str = "TopicA") -> bytes:
    """A compressed registration that repeats one topic."""
    version = json.dumps({"counter": 1, "stateVersion": 0, "timestamp": 1700000000000}).encode()
    repeated = block(f"{name} 8 8 6 SINGLE_TAG".encode()) * topics
    content = block(version) + topics.to_bytes(4, "big") + repeated + block(b"[]") + bytes(4)
    return zlib.compress(content, 9)
