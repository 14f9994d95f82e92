"""The fault laboratory: real workers on a real store, simulated brokers and clients, and a recording of all traffic.

    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            await laboratory.start(workers=3, brokers=12)
            await laboratory.calm()
            …                                   # the fault
            await laboratory.prove()

Workers are processes. Brokers and clients run in the test's event loop; each has sockets of its own, and a broker
listens at the address that it registers, because workers dial it. A client uses one worker until that connection fails,
then the next one, as RocketMQ's clients do with their list of name servers. Each worker reaches the store through a
`FaultProxy` of its own if the store has one address (`single_store`).
"""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped]

from routebook.errors import RoutebookError
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from routebook.store.history import changes_between
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.faults.invariants import Result, prove
from tests.faults.recording import (
    CutOff,
    Exchange,
    Fault,
    Incarnation,
    Lease,
    Port,
    Recording,
    Removal,
    Resources,
    Status,
)
from tests.faults.traffic import ANSWER_S, FAILURES, Link, LookupClient, SimulatedBroker, Worker
from tests.runtime.running import Running
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import lasting_free_port
from tests.support.servers import Server
from tests.support.topologies import ClusterTrio, SentinelTrio
from tests.support.waiting import until

AFTER_BOUND_S: Final = 0.5
RECORDINGS_VARIABLE: Final = "ROUTEBOOK_TEST_RECORDINGS"
"""The folder for recordings of runs that failed; by default the test's own."""
FAST: Final[dict[str, int]] = {
    "broker_timeout_ms": 4000,
    "scan_not_active_broker_interval_ms": 300,
    "lease_ms": 1500,
    "connection_grace_ms": 1500,
    "drain_ms": 1000,
    "recovery_window_ms": 30_000,
}
"""Settings that make runs short. Their proportions are those of the defaults."""


@dataclass
class Store:
    """A running store, in any topology."""

    url: str
    primary: EmbeddedStore | None = None
    """If the store is a single server."""
    sentinel: SentinelTrio | None = None
    cluster: ClusterTrio | None = None

    @property
    def has_one_address(self) -> bool:
        return self.primary is not None


@contextmanager
def single_store(server: Server | None = None, *, folder: Path | None = None, **options: str) -> Iterator[Store]:
    """With `folder`, data survive a restart. Options are those of the server, with `_` for `-`."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    path = server.path if server else None
    with EmbeddedStore(folder, port=lasting_free_port(), server=path, options=given) as running:
        yield Store(running.url, primary=running)


@contextmanager
def sentinel_store(server: Server | None = None) -> Iterator[Store]:
    """One primary, two replicas, three sentinels."""
    with SentinelTrio(replicas=2, server=server.path if server else None) as trio:
        yield Store(trio.url, sentinel=trio)


@contextmanager
def cluster_store(server: Server | None = None) -> Iterator[Store]:
    """Three nodes."""
    with ClusterTrio(server=server.path if server else None) as trio:
        yield Store(trio.url, cluster=trio)


class Laboratory:
    def __init__(self, store: Store, namespace: str, folder: Path, seed: int, **settings: int | str) -> None:
        """Settings are those of the workers; by default `FAST`."""
        self.store = store
        self.folder = folder
        self.random = random.Random(seed)
        self.settings: dict[str, int | str] = {**FAST, **settings}
        self.workers: list[Worker] = []
        self.brokers: dict[str, SimulatedBroker] = {}
        self.clients: list[LookupClient] = []
        self.recording = Recording(broker_timeout_s=0, seed=seed)
        self.churns = True
        self.tasks: set[asyncio.Task[None]] = set()
        self.namespace = Namespace(
            StoreClient(StoreUrl.parse(store.url), slot_key=Keys(namespace).meta, timeout_ms=2000, connections=2),
            Keys(namespace),
            ScriptSet.load(),
        )
        self._stack = AsyncExitStack()
        self._numbers = itertools.count()
        self._stopping = False
        self._failures: list[BaseException] = []

    async def __aenter__(self) -> Self:
        await self.namespace.client.open()
        self._stack.push_async_callback(self.namespace.client.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for broker in self.brokers.values():
            broker.close()
        for client in self.clients:
            client.close()
        await self._stack.aclose()
        if error is not None:
            self.save_recording()
        if self._failures:
            raise self._failures[0]

    async def start(
        self, *, workers: int = 3, brokers: int = 9, remoting: int = 4, http: int = 2, per_second: float = 25
    ) -> None:
        """Starts these in addition to those that run. Returns when all workers have all brokers, and all clients look
        up topics. `remoting` and `http` are numbers of clients, `per_second` is the rate of each.
        """
        self.recording.broker_timeout_s = self.setting_s("broker_timeout_ms")
        await asyncio.gather(*(self.start_worker() for _ in range(workers)))
        for number in range(brokers):
            self.start_broker(f"broker-{number}")
        await until(self.all_are_complete)
        self.spawn(self._watch_statuses())
        self.spawn(self._watch_leases())
        for number in range(remoting + http):
            port: Port = "remoting" if number < remoting else "http"
            client = LookupClient(self, port, per_second, first=number)
            self.clients.append(client)
            self.spawn(client.run())
        await asyncio.to_thread(self.measure_resources, "before")

    def setting_s(self, name: str) -> float:
        """A setting in milliseconds, as seconds."""
        return float(self.settings[name]) / 1000

    async def start_worker(self, *, url: str = "", env: dict[str, str] | None = None, **settings: int | str) -> Worker:
        """`url`: instead of the laboratory's store. `env`: environment variables of the process, besides the usual
        ones.
        """
        proxy = None
        if self.store.has_one_address and not url:
            proxy = await self._stack.enter_async_context(FaultProxy.before(self.store.url))
        flags = {"bind_address": "127.0.0.1", **self.settings, **settings}
        command = ["serve", "--redis-url", proxy.url if proxy else url or self.store.url]
        command += ["--namespace", self.namespace.keys.namespace]
        command += [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        folder = self.folder / f"worker-{next(self._numbers)}"
        folder.mkdir(parents=True)
        running = Running(*command, folder=folder, env=env)
        await asyncio.to_thread(running.__enter__)
        self._stack.callback(running.__exit__, None, None, None)
        name = (await asyncio.to_thread(running.get, "/v1/status")).json()["worker"]
        worker = Worker(name, running, proxy)
        self.workers.append(worker)
        return worker

    def start_broker(self, name: str, **options: Any) -> "SimulatedBroker":
        broker = SimulatedBroker(self, name, number=len(self.brokers), **options)
        self.brokers[name] = broker
        self.spawn(broker.run())
        return broker

    def spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def mark(self, what: str) -> None:
        self.recording.faults.append(Fault(what, time.monotonic()))

    @property
    def running_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    async def kill_worker(self, worker: Worker) -> None:
        worker.alive = False
        self.mark(f"kill -9 of {worker.name}")
        await asyncio.to_thread(worker.process.kill)

    async def leader(self) -> Worker:
        """The worker that holds the lease; waits until one does."""
        found: list[Worker] = []

        async def is_there() -> bool:
            lease = await self.read_lease()
            found[:] = [worker for worker in self.running_workers if lease and worker.name == lease.worker]
            return bool(found)

        await until(is_there)
        return found[0]

    async def read_lease(self) -> Lease | None:
        client, keys = self.namespace.client, self.namespace.keys
        try:
            now = await client.call("TIME")
            lease = await client.call("GET", keys.table("leader"))
        except RoutebookError:
            return None
        if not lease:
            return None
        token, worker, _ = lease.decode().rsplit(":", 2) if lease.count(b":") == 2 else lease.decode().split(":", 2)
        return Lease(int(now[0]) * 1000 + int(now[1]) // 1000, int(token), worker)

    async def suspend(self, worker: Worker, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time. Brokers and clients use other workers meanwhile."""
        self.mark(f"{worker.name} is suspended for {seconds:g} s")
        began = time.monotonic()
        os.kill(worker.process.process.pid, signal.SIGSTOP)
        worker.alive = False
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(worker.process.process.pid, signal.SIGCONT)
            worker.alive = True
            self.recording.cut_off.append(CutOff(worker.name, began, time.monotonic()))

    async def has_removed(self, *brokers: str) -> bool:
        """Whether no worker has any of these brokers."""
        return not any([await self.brokers_of(worker) & set(brokers) for worker in self.running_workers])

    async def all_are_complete(self) -> bool:
        """Whether every worker has every broker that lives."""
        living = {broker.name for broker in self.brokers.values() if broker.lives}
        return all([await self.brokers_of(worker) == living for worker in self.running_workers])

    async def brokers_of(self, worker: Worker) -> set[str]:
        with suppress(*FAILURES):
            link = await Link.open(worker, "http")
            try:
                async with asyncio.timeout(ANSWER_S):
                    _, _, body = await link.get("/v1/brokers")
                return {broker["name"] for broker in json.loads(body)["brokers"]}
            finally:
                link.close()
        return set()

    async def calm(self, seconds: float = 2.0) -> None:
        """Traffic without a fault. Also used after one."""
        await asyncio.sleep(seconds)

    async def metric(self, worker: Worker, name: str) -> float:
        """The sum over all labels."""
        text = (await asyncio.to_thread(worker.process.get_admin, "/metrics")).text
        lines = (line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def prove(
        self, *, required: Sequence[str] = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "I9")
    ) -> dict[str, Result]:
        """Ends the traffic, completes the recording and proves the invariants over it. `required` are those that must
        have compared something. The traffic goes on until lookups have shown what each dead broker's bound demands.
        """
        last_bound = max((death.at + death.bound_s for death in self.recording.deaths), default=0.0)
        await asyncio.sleep(last_bound + AFTER_BOUND_S - time.monotonic())
        await self.finish()
        try:
            results = await asyncio.to_thread(prove, self.recording, required=required)
        except AssertionError:
            self.save_recording()  # here, because a fixture does not learn that its test has failed
            raise
        print(*(f"{one.invariant}: {one.compared} comparisons" for one in results.values()), sep=", ")
        return results

    def save_recording(self) -> None:
        folder = Path(os.environ.get(RECORDINGS_VARIABLE) or self.folder)
        self.recording.save(folder / f"recording-{self.namespace.keys.namespace}.json")

    async def finish(self) -> None:
        """Lets the brokers change nothing any more, waits until all workers agree, and stops the traffic."""
        self.churns = False
        await until(lambda: not any(broker.is_registering for broker in self.brokers.values()))
        # The registrations of one more period have to be without changes.
        await asyncio.sleep(2 * max((broker.period_s for broker in self.brokers.values()), default=0))
        changed = [one for one in self.recording.of_kind("registration", "unregistration") if one.incarnation]
        self.recording.last_change = self._last_change_of(changed)
        self.recording.workers_at_end = [worker.name for worker in self.running_workers]
        await asyncio.sleep(2.0)
        self._stopping = True
        await asyncio.gather(*(client.stopped() for client in self.clients))
        now = time.monotonic()
        for client in self.clients:
            self._plan("lookup", (now - client.started_at) * client.per_second)
        for broker in self.brokers.values():
            self._plan("registration", broker.planned)
        await asyncio.to_thread(self.measure_resources, "after")
        await self._read_removals()
        for worker in self.running_workers:
            self.recording.gaps_counted += int(await self.metric(worker, "routebook_feed_breaks_total"))

    def measure_resources(self, when: Any) -> None:
        for worker in self.running_workers:
            process = psutil.Process(worker.process.process.pid)
            metrics = worker.process.get_admin("/metrics").text
            waiting = sum(
                float(line.rpartition(" ")[2])
                for line in metrics.splitlines()
                if line.startswith("routebook_remoting_waiting_requests{")
            )
            self.recording.resources.append(
                Resources(worker.name, when, process.memory_info().rss, process.num_fds(), int(waiting))
            )

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)

    def _plan(self, kind: str, number: float) -> None:
        self.recording.planned[kind] = self.recording.planned.get(kind, 0) + int(number)

    @staticmethod
    def _last_change_of(registrations: list[Exchange]) -> float:
        """When the last registration that differed from the one before it was acknowledged."""
        newest: dict[str, Incarnation | None] = {}
        last = 0.0
        for one in registrations:
            if newest.get(one.subject) != one.incarnation and one.answered is not None:
                last = max(last, one.answered)
                newest[one.subject] = one.incarnation
        return last

    async def _watch_statuses(self) -> None:
        while not self._stopping:
            await asyncio.gather(*(self._read_status(worker) for worker in self.running_workers))
            await asyncio.sleep(0.2)

    async def _read_status(self, worker: Worker) -> None:
        with suppress(*FAILURES):
            link = await Link.open(worker, "http")
            try:
                async with asyncio.timeout(ANSWER_S):
                    sent = time.monotonic()
                    status, _, body = await link.get("/v1/status")
                    answered = time.monotonic()
            finally:
                link.close()
            if status == 200:
                found = json.loads(body)
                if found["complete"]:
                    values = (found["version"], found["history"], found["digest"], found["recovering"])
                    stale = float(found["stale_seconds"] or 0)
                    self.recording.statuses.append(Status(worker.name, sent, answered, *values, stale))

    async def _watch_leases(self) -> None:
        while not self._stopping:
            if lease := await self.read_lease():
                self.recording.leases.append(lease)
            await asyncio.sleep(0.05)

    async def _read_removals(self) -> None:
        history = self.recording.statuses[-1].history
        for change in await changes_between(self.namespace, 0, 1_000_000):
            if change.kind == "broker-removed":
                text = {name: str(change.fields.get(name, "")) for name in ("actor", "broker", "addr", "cause")}
                self.recording.removals.append(Removal(change.ms, change.version, history, *text.values()))


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


async def seconds_until(condition: Callable[[], Awaitable[object] | object], *, timeout_s: float = 60.0) -> float:
    """How long it took until the condition was true."""
    began = time.monotonic()
    await until(condition, timeout_s=timeout_s)
    return time.monotonic() - began
