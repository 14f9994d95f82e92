"""What the service reports about itself, and the rule for how much of the history is kept."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from routebook.registry.identities import Openness
from routebook.replica.replica import Replica
from routebook.settings.fields import Settings
from routebook.store.history import HistoryState, Reader
from routebook.store.reads import ServiceState

Reason = Literal["history_min_entries", "reader", "history_hard_limit", "history_max_bytes"]


@dataclass(frozen=True, slots=True)
class HistoryBound:
    """The bound that applies now: entries with a version up to `below` may be trimmed."""

    below: int
    keep: int
    """Entries up to this version are needed by no reader. If `below` is greater, memory is the reason, and a reader may
    miss entries.
    """
    reason: Reason
    reader: str | None
    """The slowest reader, if it decides the bound."""


def active_readers(state: HistoryState, expiry_ms: int) -> Sequence[Reader]:
    """Readers that have reported their position recently. For others, nothing is kept."""
    return [reader for reader in state.readers if state.now_ms - reader.seen_ms <= expiry_ms]


def history_bound(state: HistoryState, settings: Settings) -> HistoryBound:
    slowest = min(active_readers(state, settings.reader_expiry_ms), key=lambda reader: reader.version, default=None)
    least = max(state.newest - settings.history_min_entries, 0)
    is_reader_behind = slowest is not None and slowest.version < least
    keep = slowest.version if slowest is not None and is_reader_behind else least
    by_number = state.newest - settings.history_hard_limit
    by_bytes = state.first_within(settings.history_max_bytes)
    reason: Reason
    if max(by_number, by_bytes) > keep:
        reason = "history_hard_limit" if by_number >= by_bytes else "history_max_bytes"
    else:
        reason = "reader" if is_reader_behind else "history_min_entries"
    return HistoryBound(
        below=max(keep, by_number, by_bytes),
        keep=keep,
        reason=reason,
        reader=slowest.name if slowest is not None and reason == "reader" else None,
    )


@dataclass(frozen=True, slots=True)
class ExpiryState:
    """Which worker scans deadlines, and whether removals are held."""

    held: bool
    held_since_ms: int | None
    brokers: tuple[str, ...]
    """Brokers whose removal is held (the first thousand)."""
    due: int
    instances: int
    leader: str | None
    token: int | None
    last_scan_ms: int | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    worker: str
    lease_ends_ms: int
    alive: bool
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StoreHealth:
    """What the background work of this worker has found out about the store."""

    alarms: Mapping[str, str] = field(default_factory=dict)
    """Kind of the alarm → what is wrong and what to do, while it lasts."""
    last_check: float | None = None
    """When the last complete self-check ended (monotonic clock); None if there was none."""
    differences: int = 0
    """Objects that self-checks have found different, since the start."""
    last_difference: str = ""
    """What a self-check wrote back last."""
    removals_held: bool = False
    """Whether removals were held when this worker last renewed its lease."""

    @property
    def check_age_s(self) -> float | None:
        return None if self.last_check is None else round(time.monotonic() - self.last_check, 1)


AnswerWarning = Literal["stale", "incomplete", "recovering", "removals-held"]


def warnings_of(replica: Replica, health: StoreHealth) -> tuple[AnswerWarning, ...]:
    """Why an answer from this worker's table may be wrong or old, the worst reason first. Usually empty."""
    found: list[AnswerWarning] = []
    if not replica.complete:
        found.append("incomplete")
    if replica.stale_ms():
        found.append("stale")
    if replica.is_recovering:
        found.append("recovering")
    if health.removals_held:
        found.append("removals-held")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """As one worker sees it. `expiry` and the fields about the history are None when the store is out of reach."""

    worker: str
    namespace: str
    version: int
    history: str
    digest: str
    complete: bool
    stale_seconds: float
    recovering: bool
    expiry: ExpiryState | None
    workers: tuple[WorkerInfo, ...]
    brokers: int
    groups: int
    topics: int
    clusters: int
    history_bound: HistoryBound | None
    history_state: HistoryState | None
    scripts: str
    identities: int
    open_to_all: tuple[Openness, ...]
    warnings: tuple[AnswerWarning, ...] = ()
    health: StoreHealth = field(default_factory=StoreHealth)


def _number(text: str | None) -> int | None:
    return int(float(text)) if text else None


def expiry_state(state: ServiceState) -> ExpiryState:
    held_since = _number(state.expiry.get("held_since_ms"))
    return ExpiryState(
        held=held_since is not None,
        held_since_ms=held_since,
        brokers=tuple(json.loads(state.expiry.get("brokers", "[]"))),
        due=_number(state.expiry.get("due")) or 0,
        instances=_number(state.expiry.get("instances")) or 0,
        leader=state.lease.worker if state.lease else None,
        token=state.lease.token if state.lease else None,
        last_scan_ms=_number(state.expiry.get("last_scan_ms")),
    )


def worker_infos(state: ServiceState) -> tuple[WorkerInfo, ...]:
    return tuple(
        WorkerInfo(worker, state.now_ms + left_ms, left_ms >= 0, json.loads(state.about.get(worker, "{}")))
        for worker, left_ms in sorted(state.workers.items())
    )
