"""What the service reports about itself, and the rule for how much of the history is kept.

`Inspection` is the part of the registry that reads the store for operators: status, expiry, history, heartbeats.
Nothing here writes routes.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from routebook.errors import StoreError
from routebook.registry.identities import Identities, Openness, open_to_all
from routebook.registry.reading import BrokerView, Reading
from routebook.replica.replica import Replica
from routebook.settings.fields import Settings
from routebook.settings.live import LiveSettings
from routebook.store.change_search import (
    ChangeFilter,
    ChangeSearch,
    ChangesPage,
    Cursor,
    Position,
    bounds_of,
    newest_ids,
    search_changes,
)
from routebook.store.history import (
    Change,
    HistoryState,
    Reader,
    changes_between,
    first_change,
    read_history_state,
    request_baseline,
)
from routebook.store.namespace import Namespace
from routebook.store.reads import Presence, ServiceState, read_presences, read_service_state

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


class Inspection(Reading):
    def __init__(self, namespace: Namespace, replica: Replica, live: LiveSettings, *, worker: str) -> None:
        super().__init__(replica, live)
        self.worker = worker
        self.store_health = StoreHealth()
        self.identities = Identities(namespace, replica)
        self._namespace = namespace

    @property
    def namespace(self) -> str:
        return self._namespace.keys.namespace

    async def presences(self, views: Sequence[BrokerView]) -> Mapping[str, Presence]:
        """Heartbeats and connections of all instances of these groups, by instance name. Empty when the store cannot be
        reached: the groups themselves are in memory and are still shown.
        """
        incarnations = {
            instance.instance_name: instance.incarnation for view in views for instance in view.instances.values()
        }
        if self.stale_seconds > 0:
            return {}
        try:
            return await read_presences(self._namespace, incarnations)
        except StoreError:
            return {}

    async def expiry_state(self) -> ExpiryState:
        return expiry_state(await read_service_state(self._namespace))

    async def changes(self, since: int, limit: int) -> list[Change]:
        return await changes_between(self._namespace, since, limit)

    async def search_changes(
        self,
        wanted: ChangeFilter,
        *,
        since: Position | None = None,
        until: Position | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> ChangesPage:
        """One page of the history and the refusals, merged by time."""
        changes, refusals = await bounds_of(self._namespace, since, until)
        search = ChangeSearch(wanted, changes, refusals, cursor, newest_first, limit)
        return await search_changes(self._namespace, search)

    async def newest_ids(self) -> Cursor:
        """A cursor behind everything that the history and the refusals have now."""
        return await newest_ids(self._namespace)

    async def first_version(self) -> int | None:
        """Version of the oldest entry that the history has."""
        first = await first_change(self._namespace)
        return first[1] if first else None

    async def request_baseline(self) -> int:
        """The leader writes it within seconds. Returns the time of the first open request (ms, the store's clock)."""
        return await request_baseline(self._namespace, "operator")

    async def status(self) -> ServiceStatus:
        """While the store is out of reach, only what this worker itself knows."""
        expiry: ExpiryState | None = None
        workers: tuple[WorkerInfo, ...] = ()
        history: HistoryState | None = None
        try:
            state = await read_service_state(self._namespace)
            expiry, workers = expiry_state(state), worker_infos(state)
            history = await read_history_state(self._namespace)
        except StoreError:
            pass
        view = self.replica.view
        return ServiceStatus(
            worker=self.worker,
            namespace=self.namespace,
            version=self.replica.version,
            history=self.replica.history,
            digest=self.replica.table.digest,
            complete=self.replica.complete,
            stale_seconds=self.stale_seconds,
            recovering=self.replica.is_recovering,
            expiry=expiry,
            workers=workers,
            brokers=sum(len(group.addresses) for group in view.groups.values()),
            groups=len(view.groups),
            topics=len(view.topics),
            clusters=len(view.clusters),
            history_bound=history_bound(history, self.live.current) if history else None,
            history_state=history,
            scripts=self._namespace.scripts.fingerprint,
            warnings=warnings_of(self.replica, self.store_health),
            health=self.store_health,
            identities=len(self.identities.all()),
            open_to_all=open_to_all(self.live.current, self.identities),
        )
