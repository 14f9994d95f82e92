"""Live data for open consoles: one stream of events that all consoles of a worker share, and the status behind them.

- A change is collected and encoded once for all consoles, and each console only remembers how far it has read. A
  console that falls behind gets one event, after which it reads its page again.
- Events do not carry data of the table. They name what changed, and the page reads its parts again. So nothing is lost
  by joining events, and resuming needs no replay: a console that missed changes reads its page once.
- Lookups wait while the worker renders, so all consoles together may use a small share of its time. With many of them,
  a page that changes all the time is read less often, and consoles that show the same page read it at the same time:
  it is rendered once for all of them.
- Without a console nothing runs.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
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

STATE_S: Final = 1.0
"""At the latest after this time, a console receives an event. Without one for 2.5 times as long, it says that the
connection is lost.
"""
COLLECT_S: Final = 0.2
"""Changes within this time are one event."""
STATUS_S: Final = 2.0
LINGER_S: Final = 300.0
"""The rates are measured until this long after the last console was closed."""
MAX_NAMES: Final = 100
"""Names in one event; more are replaced by "all"."""
FRAMES: Final = 64
"""Events that are kept for consoles that read slowly."""
SLOTS: Final = 16
SLOT_S: Final = 0.005
"""An event is sent to the consoles in this many steps, so that lookups do not wait until all consoles have it."""
POINTS: Final = 120
MIN_PACE_MS: Final = 250
FEW_CONSOLES: Final = 4
"""As many may always read at this pace."""
PACE_PER_PAGE_MS: Final = 400
PACE_PER_CONSOLE_MS: Final = 40
"""Rendering a page takes some 4 ms, and sending it to one more console 0.4 ms. With these numbers, pages that change
all the time use about 1 % of the worker, however many are open.
"""
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


RATES: Final = ("lookups", "registrations", "heartbeats", "refused")
"""In the order of the fields of `Rates`."""
SHOWN_RATES: Final = RATES[:3]
"""Those with a line on the overview."""


def _rate(name: str, earlier: tuple[float, Activity], later: tuple[float, Activity]) -> float:
    (start, before), (end, after) = earlier, later
    events: int = getattr(after, name) - getattr(before, name)
    return max(0.0, round(events / max(end - start, 0.001), 1))


class Live:
    def __init__(self, registry: Registry, metrics: Metrics, stopping: asyncio.Event, parts: "Parts") -> None:
        self._registry = registry
        self._metrics = metrics
        self._stopping = stopping
        self._parts = parts
        self._consoles = [0] * SLOTS
        """Open consoles in each slot."""
        self._last_used = 0.0
        self._task: asyncio.Task[None] | None = None
        self._pending = _Pending()
        self._frames: deque[bytes] = deque(maxlen=FRAMES)
        self._count = 0
        """Events published so far."""
        self._wakes = [asyncio.Event() for _ in range(SLOTS)]
        self._figures: deque[tuple[float, Activity]] = deque(maxlen=POINTS + 1)
        self._has_new_figures = False
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
        lookups, registrations, heartbeats, refused = ([_rate(name, *pair) for pair in pairs] for name in RATES)
        activity = points[-1][1] if points else self._metrics.activity()
        return Rates(lookups, registrations, heartbeats, refused, activity)

    @property
    def position(self) -> str:
        """Names the state of the table that a page shows; the id of events."""
        return f"{self._registry.replica.history}.{self._registry.replica.version}"

    @property
    def pace_ms(self) -> int:
        """How long a console waits at least before it reads its page again."""
        consoles = sum(self._consoles)
        if consoles <= FEW_CONSOLES:
            return MIN_PACE_MS
        return self._parts.pages * PACE_PER_PAGE_MS + consoles * PACE_PER_CONSOLE_MS

    # -- the stream

    async def stream(self, last: str) -> AsyncIterator[bytes]:
        """`last` is the id of the last event that the console received, or the position of its page."""
        slot = self._consoles.index(min(self._consoles))
        self._consoles[slot] += 1
        self.use()
        read = self._count
        try:
            yield b"retry: 1000\n\n" + self._hello(last) + self._state(has_rates=True)
            while not self._stopping.is_set():
                if read == self._count:
                    await self._wakes[slot].wait()
                    continue
                missed, read = self._count - read, self._count
                if missed > len(self._frames):
                    yield self._event("change", self._change(_Pending(is_all=True)))
                else:
                    yield b"".join(list(self._frames)[-missed:])
        finally:
            self._consoles[slot] -= 1

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

    def _state(self, *, has_rates: bool) -> bytes:
        latest: list[float | None] = [None] * len(SHOWN_RATES)
        if has_rates and len(self._figures) > 1:
            latest = [_rate(name, self._figures[-2], self._figures[-1]) for name in SHOWN_RATES]
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

    async def _publish(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._count += 1
        for slot, consoles in enumerate(self._consoles):
            if consoles:
                self._wake(slot)
                await asyncio.sleep(SLOT_S)

    def _wake(self, slot: int) -> None:
        wake, self._wakes[slot] = self._wakes[slot], asyncio.Event()
        wake.set()

    # -- the work, once for all consoles

    async def _run(self) -> None:
        stop_listening = self._registry.replica.listen(self._note_changes)
        figures_at = state_at = status_at = time.monotonic()
        try:
            while not self._stopping.is_set() and self._is_wanted():
                now = time.monotonic()
                if now >= figures_at:
                    self._figures.append((now, self._metrics.activity()))
                    self._has_new_figures, figures_at = True, now + STATE_S
                if self._is_open:
                    if now >= status_at:
                        await self._watch_condition()
                        status_at = now + STATUS_S
                    if await self._publish_changes(with_state=now >= state_at):
                        state_at = now + STATE_S
                await self._sleep(COLLECT_S if self._is_open else STATE_S)
        finally:
            stop_listening()
            self._figures.clear()
            for slot in range(SLOTS):
                self._wake(slot)

    @property
    def _is_open(self) -> bool:
        return any(self._consoles)

    def _is_wanted(self) -> bool:
        return self._is_open or time.monotonic() - self._last_used < LINGER_S

    async def _sleep(self, seconds: float) -> None:
        """Ends early when the worker stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _note_changes(self, changes: Sequence[Change], table: Table) -> None:
        del table
        if not self._is_open:
            return
        for change in changes:
            if change.kind not in BASELINE_KINDS:
                self._pending.add(change)

    async def _publish_changes(self, *, with_state: bool) -> bool:
        """Whether anything was published. The state comes with each change, so that a fleet with many changes does not
        need events for the state alone.
        """
        pending, self._pending = self._pending, _Pending()
        if not pending.kinds and not with_state:
            return False
        change = self._event("change", self._change(pending)) if pending.kinds else b""
        has_rates, self._has_new_figures = self._has_new_figures, False
        await self._publish(change + self._state(has_rates=has_rates))
        return True

    async def _watch_condition(self) -> None:
        """Some conditions change without an entry of the history: leader, workers, alarms."""
        try:
            snapshot = await self.snapshot()
        except RoutebookError:
            return
        condition = _condition_of(snapshot)
        if condition != self._condition:
            self._condition = condition
            self._pending.kinds.add("status")

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
PAGE_AGE_S: Final = 10.0
"""A page that was not read for this time is not counted any more."""


class Parts:
    """Rendered parts of pages. Consoles that show the same page read it at about the same time, and one of them causes
    the work. A part is for one state of the table, and for a second.
    """

    def __init__(self) -> None:
        self._parts: dict[Hashable, tuple[float, object, asyncio.Future[Any]]] = {}

    @property
    def pages(self) -> int:
        """Number of different pages that consoles have read lately."""
        self._drop_old()
        return len(self._parts)

    async def get(self, page: Hashable, state: object, make: Callable[[], Awaitable[_Part]]) -> _Part:
        now = time.monotonic()
        made, made_of, known = self._parts.get(page, (0.0, None, None))
        if known is not None and made_of == state and now - made < PART_AGE_S:
            return cast("_Part", await asyncio.shield(known))
        making = asyncio.ensure_future(make())
        if len(self._parts) >= PARTS:
            self._drop_old()
        if len(self._parts) < PARTS or page in self._parts:
            self._parts[page] = (now, state, making)
        return await asyncio.shield(making)

    def _drop_old(self) -> None:
        oldest = time.monotonic() - PAGE_AGE_S
        self._parts = {page: part for page, part in self._parts.items() if part[0] > oldest}


class Console:
    """What the pages of one worker share."""

    def __init__(self, registry: Registry, metrics: Metrics, stopping: asyncio.Event) -> None:
        self.parts = Parts()
        self.live = Live(registry, metrics, stopping, self.parts)
        self.outages = Outages(registry)
        self.rendering = LongWork()
