"""The registry's lookups: answered from memory, without a call to the store.

In doubt the answer is never "no such topic": a known answer may be old, but "unknown" has to be certain.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from routebook.errors import NotFoundError, NotReadyError
from routebook.model.broker import BrokerGroup, Instance, QueueData, TopicRoute
from routebook.model.names import join_instance_name
from routebook.replica.replica import Replica
from routebook.replica.routes import list_topics, list_topics_of_cluster
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings

_ADVICE: Final = {
    "topic": "A broker registers its topics; `GET /v1/topics` lists all known ones.",
    "broker": "`GET /v1/brokers` lists all known ones.",
    "cluster": "`GET /v1/clusters` lists all known ones.",
    "key": "`GET /v1/kv/{namespace}` lists all known ones.",
    "key-value namespace": "Its first key creates it: `PUT /v1/kv/{namespace}/{key}`.",
}


@dataclass(frozen=True, slots=True)
class BrokerView:
    group: BrokerGroup
    instances: Mapping[int, Instance]
    """By broker id."""
    clusters: frozenset[str]
    """The clusters that list it."""
    topics: int
    writable_topics: int
    closed_topics: int
    """Clients may neither write nor read them: a broker's own, such as rmq_sys_SYNC_BROKER_MEMBER."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    name: str
    brokers: tuple[str, ...]
    instances: int
    topics: int


class Reading:
    """The part of the registry that needs no store. `Registry` adds the verbs that write."""

    def __init__(self, replica: Replica, live: LiveSettings) -> None:
        self.replica = replica
        self.live = live
        self._started = time.monotonic()
        self._permissions: dict[str, tuple[tuple[int, int], int, int]] = {}
        """Group -> (revision, number of topics), numbers of writable and of closed topics."""

    # -- state

    @property
    def stale_seconds(self) -> float:
        """Age of the last contact with the store; 0 while in touch."""
        return self.replica.stale_ms() / 1000

    async def wait_for_version(self, version: int) -> None:
        await self.replica.wait_for(version, self.live.current.min_version_wait_ms)

    @property
    def view(self) -> Table:
        """The whole table, for answers that list names: it has to be complete for that."""
        if not self.replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second; see /readyz.")
        return self.replica.view

    # -- lookups

    def find_route(self, topic: str) -> bytes:
        """The route as standard JSON, encoded beforehand."""
        return self.replica.route_bytes(topic) or self._miss("topic", topic)

    @property
    def kept_route(self) -> Callable[[str], bytes | None]:
        """The cache behind `find_route`, for the fastest callers. None means that `find_route` has to be called."""
        return self.replica.cached_routes.get

    def find_plain_route(self, topic: str) -> bytes:
        """The same for old clients of the remoting port, with integer keys without quotes."""
        return self.replica.plain_route_bytes(topic) or self._miss("topic", topic)

    def find_topic(self, topic: str) -> TopicRoute:
        route = self.replica.route(topic)
        if route is None:
            self._miss("topic", topic)
        return route

    def _miss(self, what: str, name: str) -> NoReturn:
        """Raises NotFoundError only if the table is complete and current."""
        if not self.replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second; see /readyz.")
        if self.replica.stale_ms() > 0:
            raise NotReadyError(
                f"{what} {name!r} is not in the table, and the store is out of reach.",
                advice="Try again when the store is back; `routebook doctor` says what is wrong with it.",
            )
        if not self.replica.current:
            raise NotReadyError(
                f"{what} {name!r} is not in the table, which is being compared with the store.",
                advice="Try again in a second.",
            )
        if (time.monotonic() - self._started) * 1000 < self.live.current.warm_up_ms:
            raise NotReadyError(
                f"{what} {name!r} is not in the table yet, and this worker is warming up.",
                advice="Try again; brokers register every 30 s. The setting is warm_up_ms.",
            )
        raise NotFoundError(what, name, advice=_ADVICE.get(what, ""))

    def topics(self, cluster: str | None = None, broker: str | None = None) -> tuple[str, ...]:
        view = self.view
        found = (list_topics(view) if cluster is None else list_topics_of_cluster(view, cluster)).topics
        if broker is None:
            return found
        queues = view.queues_of(broker)
        return tuple(topic for topic in found if topic in queues)

    def brokers(self, cluster: str | None = None) -> tuple[str, ...]:
        view = self.view
        names = view.groups.keys() if cluster is None else view.clusters.get(cluster, set()) & view.groups.keys()
        return tuple(sorted(names))

    def broker(self, name: str) -> BrokerView:
        return self.find_broker(name) or self._miss("broker", name)

    def find_broker(self, name: str) -> BrokerView | None:
        group = self.replica.view.groups.get(name)
        return self._broker_view(group) if group else None

    def _broker_view(self, group: BrokerGroup) -> BrokerView:
        view = self.replica.view
        instances = {
            id_: instance
            for id_, address in group.addresses.items()
            if (instance := view.instances.get(join_instance_name(group.cluster, address)))
        }
        queues = view.queues_of(group.name)
        clusters = frozenset(name for name, brokers in view.clusters.items() if group.name in brokers)
        return BrokerView(group, instances, clusters, len(queues), *self._count_permissions(group, queues))

    def _count_permissions(self, group: BrokerGroup, queues: Mapping[str, QueueData]) -> tuple[int, int]:
        """Writable and closed topics, counted once for each revision of a group: it may have tens of thousands."""
        state = (group.revision, len(queues))
        counted = self._permissions.get(group.name)
        if counted is None or counted[0] != state:
            if len(self._permissions) > 2 * len(self.replica.view.groups) + 100:
                self._permissions.clear()
            writable = sum(queue.is_writable for queue in queues.values())
            closed = sum(queue.is_closed for queue in queues.values())
            counted = self._permissions[group.name] = (state, writable, closed)
        return counted[1:]

    def clusters(self) -> tuple[ClusterView, ...]:
        return tuple(self._cluster_view(name) for name in sorted(self.view.clusters))

    def cluster(self, name: str) -> ClusterView:
        if name not in self.replica.view.clusters:
            self._miss("cluster", name)
        return self._cluster_view(name)

    def _cluster_view(self, name: str) -> ClusterView:
        view = self.replica.view
        brokers = sorted(view.clusters[name])
        seats = sum(len(view.groups[broker].addresses) for broker in brokers if broker in view.groups)
        return ClusterView(name, tuple(brokers), seats, len(list_topics_of_cluster(view, name).topics))

    def kv(self, namespace: str) -> Mapping[str, str]:
        values = self.replica.view.kv.get(namespace)
        if values is None:
            self._miss("key-value namespace", namespace)
        return values

    def kv_value(self, namespace: str, key: str) -> str:
        value = self.replica.view.kv.get(namespace, {}).get(key)
        if value is None:
            self._miss("key", f"{namespace}/{key}")
        return value
