"""Live data for open consoles: one stream of events that all consoles of a worker share, and the status behind them.

- The work does not depend on the number of consoles: a change is collected and encoded once, and each console only
  remembers how far it has read. A console that falls behind gets one event, after which it reads its page again.
- Events do not carry data of the table. They name what changed, and the page reads its parts again, at a pace that
  falls with the number of consoles. So nothing is lost by joining events, and resuming needs no replay: a console that
  missed changes reads its page once.
- Without a console nothing runs.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from routebook.console.outages import Outages
from routebook.errors import RoutebookError
from routebook.observability.metrics import Activity, Metrics
from routebook.registry.registration import LongWork
from routebook.registry.registry import Registry
from routebook.registry.status import ServiceStatus, WorkerInfo
from routebook.replica.table import Table
from routebook.store.history import BASELINE_KINDS, Change

_log = logging.getLogger(__name__)

TICK_S: Final = 1.0
"""A console that has received nothing for 2.5 ticks says that the connection is lost."""
COLLECT_S: Final = 0.2
"""Changes within this time are one event."""
STATUS_EVERY_TICKS: Final = 2
LINGER_S: Final = 300.0
"""The rates are measured until this long after the last console was closed."""
MAX_NAMES: Final = 100
"""Names in one event; more are replaced by "all"."""
FRAMES: Final = 64
"""Events that are kept for consoles that read slowly."""
SLOTS: Final = 16
SLOT_S: Final = 0.005
"""An event is sent to the consoles in this many steps, so that lookups do not wait until all have it."""
POINTS: Final = 120
PAGES_PER_SECOND: Final = 20
"""Read by all consoles of a worker together, however many are open."""
MIN_PACE_MS: Final = 250
STATUS_AGE_S: Final = 1.0
STATUS_WAIT_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Rates:
    """Events a second on this worker, oldest first."""

    lookups: Sequence[float]
    registrations: Sequence[float]
    heartbeats: Sequence[float]
    refused: Sequence[float]
    activity: Activity


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as its last renewal of its lease described it."""

    name: str
    alive: bool
    is_this: bool
    is_leader: bool
    version: int | None
    digest: str
    lag: int
    stale_ms: int
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether the tables of all living workers have the same digest."""

    verdict: str
    """`agree`, `differ`, `behind` (they have different versions, so their digests cannot be compared), or `unknown`."""
    version: int = 0
    last_agreed_ms: int = 0
    workers: Sequence[WorkerRow] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The status of the service, and its age."""

    status: ServiceStatus
    agreement: Agreement
    taken: float
    taken_ms: int
    from_store: bool
    """False when the store did not answer in time: its part of the status is from an earlier time, or missing."""

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.taken


@dataclass(slots=True)
class _Pending:
    """What changed since the last event."""

    brokers: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    is_all: bool = False

    def add(self, change: Change) -> None:
        self.kinds.add(change.kind)
        if self.is_all:
            return
        if change.broker:
            self.brokers.add(change.broker)
        self.topics.update(change.topics or ())
        if change.kind in ("kv-put", "kv-deleted"):
            self.topics.add(str(change.fields.get("key")))
        if len(self.brokers) + len(self.topics) > MAX_NAMES:
            self.is_all = True
            self.brokers.clear()
            self.topics.clear()


class Live:
    def __init__(self, registry: Registry, metrics: Metrics, stopping: asyncio.Event) -> None:
        self._registry = registry
        self._metrics = metrics
        self._stopping = stopping
        self._consoles = 0
        self._last_used = 0.0
        self._task: asyncio.Task[None] | None = None
        self._pending: _Pending | None = None
        self._frames: deque[bytes] = deque(maxlen=FRAMES)
        self._count = 0
        """Events published so far."""
        self._wake = asyncio.Event()
        self._figures: deque[tuple[float, Activity]] = deque(maxlen=POINTS + 1)
        self._snapshot: Snapshot | None = None
        self._reading: asyncio.Task[Snapshot] | None = None
        self._last_agreed_ms = 0
        self._condition: tuple[object, ...] = ()

    # -- for pages

    def use(self) -> None:
        """A page was read: the rates are measured from now on."""
        self._last_used = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="console")

    async def snapshot(self) -> Snapshot:
        """At most a second old while the store answers. Otherwise the page does not wait for it longer than
        `STATUS_WAIT_S`.
        """
        if self._snapshot is None or self._snapshot.age_s > STATUS_AGE_S:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read_status(), name="console status")
            await asyncio.wait({self._reading}, timeout=STATUS_WAIT_S)
            if self._reading.done():
                return self._reading.result()
        if self._snapshot is None:
            raise RoutebookError("The store has not answered yet.", advice="The page tries again by itself.")
        return self._snapshot

    def rates(self) -> Rates:
        points = list(self._figures)
        pairs = list(pairwise(points))

        def rate(name: str) -> list[float]:
            return [
                max(0.0, round((getattr(b, name) - getattr(a, name)) / max(end - start, 0.001), 1))
                for (start, a), (end, b) in pairs
            ]

        activity = points[-1][1] if points else self._metrics.activity()
        return Rates(rate("lookups"), rate("registrations"), rate("heartbeats"), rate("refused"), activity)

    @property
    def position(self) -> str:
        """Names the state of the table that a page shows; the id of events."""
        return f"{self._registry.replica.history}.{self._registry.replica.version}"

    @property
    def pace_ms(self) -> int:
        return max(MIN_PACE_MS, self._consoles * 1000 // PAGES_PER_SECOND)

    # -- the stream

    async def stream(self, last: str) -> AsyncIterator[bytes]:
        """`last` is the id of the last event that the console received, or the position of its page."""
        delay_s = self._consoles % SLOTS * SLOT_S
        self._consoles += 1
        self.use()
        read = self._count
        try:
            yield b"retry: 1000\n\n" + self._hello(last) + self._state()
            while not self._stopping.is_set():
                if read == self._count:
                    await self._wake.wait()
                    await asyncio.sleep(delay_s)
                    continue
                missed, read = self._count - read, self._count
                if missed > len(self._frames):
                    yield self._event("change", self._change(_Pending(is_all=True)))
                else:
                    yield b"".join(list(self._frames)[-missed:])
        finally:
            self._consoles -= 1

    def _hello(self, last: str) -> bytes:
        history, _, version = last.rpartition(".")
        now = self._registry.replica
        if not last:
            state = "new"
        elif history != now.history:
            state = "reset"
        elif version == str(now.version):
            state = "same"
        else:
            state = "behind"
        return self._event("hello", {"worker": self._registry.worker, "state": state, "pace_ms": self.pace_ms})

    def _state(self) -> bytes:
        rates = self.rates()
        latest = [points[-1] if points else None for points in (rates.lookups, rates.registrations, rates.heartbeats)]
        replica = self._registry.replica
        return self._event(
            "state",
            {
                "version": replica.version,
                "stale_s": round(self._registry.stale_seconds, 1),
                "complete": replica.complete,
                "now_ms": int(time.time() * 1000),
                "rates": latest,
            },
        )

    def _change(self, pending: _Pending) -> dict[str, object]:
        return {
            "all": pending.is_all,
            "brokers": sorted(pending.brokers),
            "topics": sorted(pending.topics),
            "kinds": sorted(pending.kinds),
            "pace_ms": self.pace_ms,
        }

    def _event(self, name: str, data: dict[str, object]) -> bytes:
        text = json.dumps(data, separators=(",", ":"))
        return f"event: {name}\nid: {self.position}\ndata: {text}\n\n".encode()

    def _publish(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._count += 1
        wake, self._wake = self._wake, asyncio.Event()
        wake.set()

    # -- the work, once for all consoles

    async def _run(self) -> None:
        stop_listening = self._registry.replica.listen(self._note_changes)
        tick = 0
        try:
            while not self._stopping.is_set() and self._is_wanted():
                self._figures.append((time.monotonic(), self._metrics.activity()))
                if self._consoles:
                    self._publish(self._state())
                    if tick % STATUS_EVERY_TICKS == 0:
                        await self._watch_condition()
                tick += 1
                await self._sleep(TICK_S)
        finally:
            stop_listening()
            self._figures.clear()
            self._publish(b"")

    def _is_wanted(self) -> bool:
        return bool(self._consoles) or time.monotonic() - self._last_used < LINGER_S

    async def _sleep(self, seconds: float) -> None:
        """Until the worker stops, or for that time; ends early for what has changed."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._stopping.wait(), min(left, COLLECT_S) if self._consoles else left)
            except TimeoutError:
                self._publish_changes()
            else:
                return

    def _note_changes(self, changes: Sequence[Change], table: Table) -> None:
        del table
        if not self._consoles:
            return
        if self._pending is None:
            self._pending = _Pending()
        for change in changes:
            if change.kind not in BASELINE_KINDS:
                self._pending.add(change)

    def _publish_changes(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and pending.kinds:
            self._publish(self._event("change", self._change(pending)))

    async def _watch_condition(self) -> None:
        """Some conditions change without an entry of the history: leader, workers, alarms."""
        try:
            snapshot = await self.snapshot()
        except RoutebookError:
            return
        condition = _condition_of(snapshot)
        if condition != self._condition:
            self._condition = condition
            self._publish(self._event("change", self._change(_Pending(kinds={"status"}))))

    async def _read_status(self) -> Snapshot:
        status = await self._registry.status()
        now_ms = int(time.time() * 1000)
        previous, from_store = self._snapshot, status.expiry is not None
        keeps_previous = not from_store and previous is not None
        agreement = previous.agreement if keeps_previous and previous else self._compare(status, now_ms)
        self._snapshot = Snapshot(status, agreement, time.monotonic(), now_ms, from_store)
        return self._snapshot

    def _compare(self, status: ServiceStatus, now_ms: int) -> Agreement:
        leader = status.expiry.leader if status.expiry else None
        rows = [_worker_row(worker, self._registry.worker, leader, status.version) for worker in status.workers]
        verdict, version = compare_digests(rows)
        if verdict == "agree":
            self._last_agreed_ms = now_ms
        return Agreement(verdict, version, self._last_agreed_ms, rows)


def _worker_row(worker: WorkerInfo, this: str, leader: str | None, newest: int) -> WorkerRow:
    table = worker.about.get("table") or {}
    version = table.get("version")
    return WorkerRow(
        name=worker.worker,
        alive=worker.alive,
        is_this=worker.worker == this,
        is_leader=worker.worker == leader,
        version=version,
        digest=str(table.get("digest", "")),
        lag=max(0, newest - version) if isinstance(version, int) else 0,
        stale_ms=int(table.get("stale_ms", 0)),
        about=dict(worker.about),
    )


def compare_digests(rows: Sequence[WorkerRow]) -> tuple[str, int]:
    """The verdict, and the newest version among living workers. Digests of different versions say nothing."""
    living = [row for row in rows if row.alive and row.version is not None]
    if not living:
        return "unknown", 0
    by_version: dict[int, set[str]] = {}
    for row in living:
        by_version.setdefault(row.version or 0, set()).add(row.digest)
    newest = max(by_version)
    if any(len(digests) > 1 for digests in by_version.values()):
        return "differ", newest
    return ("agree" if len(by_version) == 1 else "behind"), newest


def _condition_of(snapshot: Snapshot) -> tuple[object, ...]:
    status = snapshot.status
    expiry = status.expiry
    return (
        snapshot.from_store,
        expiry and (expiry.leader, expiry.token, expiry.held, expiry.brokers),
        snapshot.agreement.verdict,
        tuple((row.name, row.alive) for row in snapshot.agreement.workers),
        tuple(sorted(status.health.alarms)),
        status.recovering,
        status.health.differences,
    )


_Part = TypeVar("_Part")
PARTS: Final = 200
PART_AGE_S: Final = 1.0


class Parts:
    """Rendered parts of pages. Consoles that show the same page read it at about the same time, and one of them causes
    the work. An entry is for one state of the table, and for a second.
    """

    def __init__(self) -> None:
        self._parts: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[_Part]]) -> _Part:
        now = time.monotonic()
        known = self._parts.get(key)
        if known is not None and now - known[0] < PART_AGE_S:
            return cast("_Part", await asyncio.shield(known[1]))
        if len(self._parts) >= PARTS:
            self._parts = {key: part for key, part in self._parts.items() if now - part[0] < PART_AGE_S}
        making = asyncio.ensure_future(make())
        if len(self._parts) < PARTS:
            self._parts[key] = (now, making)
        return await asyncio.shield(making)


class Console:
    """What the pages of one worker share."""

    def __init__(self, registry: Registry, metrics: Metrics, stopping: asyncio.Event) -> None:
        self.live = Live(registry, metrics, stopping)
        self.outages = Outages(registry)
        self.parts = Parts()
        self.rendering = LongWork()
