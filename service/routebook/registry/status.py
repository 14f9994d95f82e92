"""What the service says of itself, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from routebook.registry.history_bound import HistoryBound
from routebook.store.history import HistoryState
from routebook.store.reads import ServiceState


@dataclass(frozen=True, slots=True)
class ExpiryState:
    """Who scans, and whether a mass expiry is held."""

    held: bool
    held_since_ms: int | None
    brokers: tuple[str, ...]
    """Whose expiry is held (the first thousand)."""
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


@dataclass(frozen=True, slots=True)
class Status:
    """One worker's view. `expiry` and what is said of the history are None when the store cannot be asked."""

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
