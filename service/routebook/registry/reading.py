"""What is answered from memory. Never a store call, and in doubt never "no such thing"."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from routebook.errors import NotFoundError, NotReadyError
from routebook.model.broker import BrokerGroup, Instance
from routebook.model.names import member_name
from routebook.model.route import TopicRoute
from routebook.replica.pick_up import (
    ClusterInfo,
    list_topics,
    list_topics_of_cluster,
    pick_up_cluster_info,
    pick_up_route,
)
from routebook.replica.replica import Replica
from routebook.replica.table import Table
from routebook.settings.live import LiveSettings


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A group, its live entries by id, and how many topics it serves."""

    group: BrokerGroup
    instances: Mapping[int, Instance]
    topics: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    name: str
    brokers: tuple[str, ...]
    instances: int
    topics: int


class Reading:
    def __init__(self, replica: Replica, live: LiveSettings) -> None:
        self._replica = replica
        self._live = live
        self._started = time.monotonic()

    @property
    def _view(self) -> Table:
        """What may be trusted for more than a single known name: a table loaded once."""
        if not self._replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second; see /readyz.")
        return self._replica.view

    def find_route(self, topic: str) -> bytes:
        """The hot path: bytes encoded beforehand."""
        encoded = self._replica.route_bytes(topic)
        if encoded is None:
            self._miss("topic", topic)
        return encoded

    def find_topic(self, topic: str) -> TopicRoute:
        settings = self._live.current
        route = pick_up_route(
            self._replica.view,
            topic,
            support_acting_master=settings.support_acting_master,
            order_conf_enabled=settings.order_message_enable,
        )
        if route is None:
            self._miss("topic", topic)
        return route

    def _miss(self, what: str, name: str) -> NoReturn:
        """A known answer may be old; "unknown" must not be."""
        if not self._replica.complete:
            raise NotReadyError("The table is not loaded yet.", advice="Try again in a second; see /readyz.")
        if self._replica.stale_ms() > 0:
            raise NotReadyError(
                f"{what} {name!r} is not in the last table seen, and the store is out of reach.",
                advice="Try again when the store is back; `routebook doctor` says what is wrong with it.",
            )
        if (time.monotonic() - self._started) * 1000 < self._live.current.warm_up_ms:
            raise NotReadyError(
                f"{what} {name!r} is not in the book yet, and this worker is warming up.",
                advice="Try again; brokers register every 30 s. The setting is warm_up_ms.",
            )
        raise NotFoundError(what, name, advice="Brokers bring their topics with their next registration.")

    def topics(self, cluster: str | None = None) -> tuple[str, ...]:
        view = self._view
        return (list_topics(view) if cluster is None else list_topics_of_cluster(view, cluster)).topics

    def brokers(self, cluster: str | None = None) -> tuple[str, ...]:
        view = self._view
        names = view.groups.keys() if cluster is None else view.clusters.get(cluster, set()) & view.groups.keys()
        return tuple(sorted(names))

    def broker(self, name: str) -> BrokerView:
        group = self._replica.view.groups.get(name)
        if group is None:
            self._miss("broker", name)
        return self._broker_view(group)

    def _broker_view(self, group: BrokerGroup) -> BrokerView:
        view = self._replica.view
        instances = {
            id_: instance
            for id_, address in group.addresses.items()
            if (instance := view.instances.get(member_name(group.cluster, address)))
        }
        return BrokerView(group, instances, len(view.queues_of(group.name)))

    def clusters(self) -> tuple[ClusterView, ...]:
        return tuple(self._cluster_view(name) for name in sorted(self._view.clusters))

    def cluster(self, name: str) -> ClusterView:
        if name not in self._replica.view.clusters:
            self._miss("cluster", name)
        return self._cluster_view(name)

    def _cluster_view(self, name: str) -> ClusterView:
        view = self._replica.view
        brokers = sorted(view.clusters[name])
        seats = sum(len(view.groups[broker].addresses) for broker in brokers if broker in view.groups)
        return ClusterView(name, tuple(brokers), seats, len(list_topics_of_cluster(view, name).topics))

    def cluster_info(self) -> ClusterInfo:
        return pick_up_cluster_info(self._view)

    def key_values(self, namespace: str) -> Mapping[str, str]:
        values = self._replica.view.kv.get(namespace)
        if values is None:
            self._miss("key-value namespace", namespace)
        return values

    def key_value(self, namespace: str, key: str) -> str:
        value = self._replica.view.kv.get(namespace, {}).get(key)
        if value is None:
            self._miss("key", f"{namespace}/{key}")
        return value
