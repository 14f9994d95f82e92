"""What a long run runs on: one store, three workers, and a fault proxy on every connection to and between them."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis.asyncio

from routebook.store.embedded import EmbeddedStore
from tests.runtime.running import Running
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import lasting_free_port

WORKERS: Final = ("worker 1", "worker 2", "worker 3")
KEPT: Final = ("worker 1", "worker 3")
"""The workers whose process lasts from the start to the end. Worker 2 is killed and stopped; worker 3 is suspended."""
SETTINGS: Final = (
    # The smallest limits, so that the history reaches its limit within minutes and a growth of the store is not hidden.
    ("--history-min-entries", "1000"),
    ("--history-hard-limit", "2000"),
    ("--history-max-bytes", "1048576"),
    ("--pulse-max-bytes", "1048576"),
    # A check of the whole table a minute, instead of one in three.
    ("--self-check-interval-ms", "60000"),
)
START_ATTEMPTS: Final = 5


@dataclass
class Worker:
    name: str
    folder: Path
    to_store: FaultProxy
    port: int = field(default_factory=lambda: lasting_free_port((-2, 1)))
    running: Running | None = None
    to_peers: FaultProxy | None = None
    down: bool = True
    """It is dead or suspended at the moment, so it cannot answer."""
    restarts: int = -1
    failed_starts: int = 0

    def start(self) -> None:
        """Starts it again when the start fails, as a supervisor does: the store may be slow on a busy machine."""
        for attempt in range(START_ATTEMPTS):
            try:
                self._start_once()
                return
            except AssertionError:
                self.failed_starts += 1
                if attempt == START_ATTEMPTS - 1:
                    raise

    def _start_once(self) -> None:
        self.running = Running(
            *("serve", "--redis-url", self.to_store.url, "--bind-address", "127.0.0.1"),
            *("--remoting-port", str(self.port), "--http-port", str(self.port - 2)),
            *("--admin-port", str(self.port + 1), *(word for pair in SETTINGS for word in pair)),
            folder=self.folder,
            ports=False,
        ).__enter__()
        self.restarts += 1
        self.down = False

    @property
    def process(self) -> Running:
        assert self.running
        return self.running

    @property
    def address(self) -> str:
        """The address for lookups, without the proxy."""
        return f"127.0.0.1:{self.port}"

    def stop(self, how: signal.Signals) -> None:
        self.down = True
        if self.running:
            self.running.stop(how, within=60)
            self.running.__exit__(None, None, None)

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log-*")))


class Plant:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = EmbeddedStore(folder / "store", port=lasting_free_port())
        self.workers: list[Worker] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.store.start)
            self._stack.callback(self.store.stop)
            for name in WORKERS:
                await self._add_worker(name)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _add_worker(self, name: str) -> None:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        worker = Worker(name, folder, await self._stack.enter_async_context(FaultProxy.before(self.store.url)))
        await asyncio.to_thread(worker.start)
        self._stack.callback(worker.stop, signal.SIGKILL)
        worker.to_peers = await self._stack.enter_async_context(FaultProxy("127.0.0.1", worker.port))
        self.workers.append(worker)

    @property
    def name_servers(self) -> str:
        return ";".join(f"127.0.0.1:{worker.to_peers.port}" for worker in self.workers if worker.to_peers)

    def fleet(self, seed: int, prefix: str, first_address: str, *options: str) -> "Fleet":
        arguments = [
            *("simulate", "-n", self.name_servers, "--seed", str(seed), "--prefix", prefix, "--json"),
            *("--first-address", first_address, "--period", "10s", "--poll", "10s", *options),
        ]
        return Fleet(arguments, self.folder / f"{prefix}.log", self.folder / f"{prefix}.json")


class Fleet:
    """A `routebook simulate` in a process of its own."""

    def __init__(self, arguments: list[str], log: Path, summary: Path) -> None:
        self._log, self._summary = log, summary
        with summary.open("wb") as out, log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "routebook", *arguments], stdout=out, stderr=errors, start_new_session=True
            )

    async def end(self) -> str:
        """Ends it as Ctrl-C does, and returns its summary."""
        self.process.send_signal(signal.SIGINT)
        try:
            await asyncio.to_thread(self.process.wait, 90)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._summary.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()


Fault = Callable[[Plant, random.Random], Awaitable[None]]


async def kill_worker(plant: Plant, rng: random.Random) -> None:
    await _restart_worker(plant, rng, signal.SIGKILL)


async def stop_worker(plant: Plant, rng: random.Random) -> None:
    await _restart_worker(plant, rng, signal.SIGTERM)


async def _restart_worker(plant: Plant, rng: random.Random, how: signal.Signals) -> None:
    worker = plant.workers[1]
    await asyncio.to_thread(worker.stop, how)
    await asyncio.sleep(rng.uniform(0.5, 5))
    await asyncio.to_thread(worker.start)


async def suspend_worker(plant: Plant, rng: random.Random) -> None:
    worker = plant.workers[2]
    worker.down = True
    os.kill(worker.process.process.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(rng.uniform(1, 9))
    finally:
        os.kill(worker.process.process.pid, signal.SIGCONT)
    await asyncio.sleep(1)
    worker.down = False


async def restart_store(plant: Plant, rng: random.Random) -> None:
    os.kill(plant.store.process_id, signal.SIGKILL)
    await asyncio.to_thread(plant.store.stop)
    await asyncio.sleep(rng.uniform(0, 6))
    await asyncio.to_thread(plant.store.start)


async def suspend_store(plant: Plant, rng: random.Random) -> None:
    process = plant.store.process_id
    os.kill(process, signal.SIGSTOP)
    try:
        await asyncio.sleep(rng.uniform(0.5, 8))
    finally:
        os.kill(process, signal.SIGCONT)


async def empty_store(plant: Plant, rng: random.Random) -> None:
    async with store_client(plant) as client:
        await client.flushall()


async def flush_scripts(plant: Plant, rng: random.Random) -> None:
    async with store_client(plant) as client:
        await client.script_flush()


async def cut_store(plant: Plant, rng: random.Random) -> None:
    for worker in _some(plant, rng):
        worker.to_store.cut()


async def stall_store(plant: Plant, rng: random.Random) -> None:
    await _disturb([worker.to_store for worker in _some(plant, rng)], FaultProxy.stall, rng.uniform(0.5, 12))


async def hold_store_answers(plant: Plant, rng: random.Random) -> None:
    await _disturb([worker.to_store for worker in _some(plant, rng)], FaultProxy.hold_answers, rng.uniform(0.3, 3))


async def delay_store(plant: Plant, rng: random.Random) -> None:
    delay_s = rng.uniform(0.05, 0.3)

    def delay(proxy: FaultProxy) -> None:
        proxy.delay(delay_s)

    await _disturb([worker.to_store for worker in _some(plant, rng)], delay, rng.uniform(3, 15))


async def cut_peers(plant: Plant, rng: random.Random) -> None:
    for worker in _some(plant, rng):
        assert worker.to_peers
        worker.to_peers.cut()


async def stall_peers(plant: Plant, rng: random.Random) -> None:
    proxies = [worker.to_peers for worker in _some(plant, rng) if worker.to_peers]
    await _disturb(proxies, FaultProxy.stall, rng.uniform(0.5, 12))


FAULTS: Final[dict[str, Fault]] = {
    "worker killed": kill_worker,
    "worker stopped": stop_worker,
    "worker suspended": suspend_worker,
    "store restarted": restart_store,
    "store suspended": suspend_store,
    "store emptied": empty_store,
    "scripts flushed": flush_scripts,
    "store cut": cut_store,
    "store stalled": stall_store,
    "store replies held": hold_store_answers,
    "store slow": delay_store,
    "peers cut": cut_peers,
    "peers stalled": stall_peers,
}


def _some(plant: Plant, rng: random.Random) -> list[Worker]:
    """One worker, or all."""
    return plant.workers if rng.random() < 0.3 else [rng.choice(plant.workers)]


async def _disturb(proxies: list[FaultProxy], disturb: Callable[[FaultProxy], None], seconds: float) -> None:
    for proxy in proxies:
        disturb(proxy)
    try:
        await asyncio.sleep(seconds)
    finally:
        for proxy in proxies:
            proxy.heal()


@asynccontextmanager
async def store_client(plant: Plant) -> AsyncIterator["redis.asyncio.Redis"]:
    client = redis.asyncio.Redis(port=plant.store.port or 0, protocol=2, socket_timeout=5)
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):
            await client.aclose()
