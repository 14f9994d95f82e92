"""The part of the registry that reads the store for operators: status, expiry, history, heartbeats. Nothing here writes
routes.
"""

from collections.abc import Mapping, Sequence

from routebook.errors import StoreError
from routebook.registry.identities import Identities, open_to_all
from routebook.registry.reading import BrokerView, Reading
from routebook.registry.status import (
    ExpiryState,
    ServiceStatus,
    StoreHealth,
    WorkerInfo,
    expiry_state,
    history_bound,
    warnings_of,
    worker_infos,
)
from routebook.replica.replica import Replica
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
    changes_between,
    first_change,
    read_history_state,
    request_baseline,
)
from routebook.store.namespace import Namespace
from routebook.store.reads import Presence, read_presences, read_service_state


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
