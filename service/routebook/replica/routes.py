"""Answers as values, built from the table: a topic's route, the cluster view, lists of topics.

The rules are those of Apache's name server, with one difference: every list is sorted by name, so that equal tables
give equal bytes. None of these checks whether a broker is alive: whatever is in the table is in the answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from routebook.model.broker import (
    FLAG_UNIT,
    FLAG_UNIT_SUBSCRIPTION,
    MASTER_ID,
    ORDER_TOPIC_NAMESPACE,
    SYNC_MEMBER_TOPIC_PREFIX,
    BrokerGroup,
    QueueData,
    TopicRoute,
)
from routebook.replica.table import Table


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All groups with their true ids, including those without addresses, and the broker names of each cluster."""

    groups: tuple[BrokerGroup, ...]
    clusters: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TopicList:
    topics: tuple[str, ...]
    broker_address: str | None = None


def build_route(
    table: Table, topic: str, *, support_acting_master: bool, order_conf_enabled: bool
) -> TopicRoute | None:
    """None when no broker has an entry for the topic, or only broker names without a group have one."""
    queues = table.brokers_of(topic)
    groups = [table.groups[name] for name in queues if name in table.groups]
    if not groups:
        return None
    promotes = support_acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
    mappings = table.mappings_of_topic(topic)
    return TopicRoute(
        queues=queues,
        groups=tuple(_with_acting_master(group, queues[group.name]) for group in groups) if promotes else tuple(groups),
        filters=_filters(table, groups),
        mappings={bname: mappings[bname] for bname in sorted(mappings)},
        order_conf=table.kv.get(ORDER_TOPIC_NAMESPACE, {}).get(topic) if order_conf_enabled else None,
    )


def _with_acting_master(group: BrokerGroup, queue: QueueData) -> BrokerGroup:
    """When the master is lost and the topic is read-only, the smallest id appears as master. Only in the answer."""
    addresses = group.addresses
    if not group.acting_master or not addresses or MASTER_ID in addresses or queue.is_writable:
        return group
    acting = min(addresses)
    others = {broker_id: address for broker_id, address in addresses.items() if broker_id != acting}
    return replace(group, addresses={MASTER_ID: addresses[acting], **others})


def _filters(table: Table, groups: Iterable[BrokerGroup]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        for address in group.addresses.values():
            filters = table.filters_at(group.cluster, address)
            if filters:
                found[address] = filters
    return dict(sorted(found.items()))


def build_member_group(table: Table, cluster: str, broker: str) -> BrokerGroup:
    """The group with its true ids. The cluster is the one that the request named; an unknown group has no address."""
    group = table.groups.get(broker)
    return BrokerGroup(name=broker, cluster=cluster, addresses=group.addresses if group else {})


def build_cluster_info(table: Table) -> ClusterInfo:
    return ClusterInfo(
        groups=tuple(table.groups[name] for name in sorted(table.groups)),
        clusters={cluster: tuple(sorted(names)) for cluster, names in sorted(table.clusters.items())},
    )


def list_topics(table: Table) -> TopicList:
    """Every topic with a queue entry (206)."""
    return TopicList(tuple(sorted(table.topics)))


def list_topics_of_cluster(table: Table, cluster: str) -> TopicList:
    """Topics with an entry of any name listed under the cluster (224); none for an unknown cluster."""
    names = table.clusters.get(cluster, set())
    return TopicList(tuple(sorted({topic for name in names for topic in table.queues_of(name)})))


def list_system_topics(table: Table) -> TopicList:
    """Names of clusters and of their brokers, which are topics too, and the address of a broker that lists its own
    system topics (304).
    """
    names = {*table.clusters, *(name for names in table.clusters.values() for name in names)}
    return TopicList(tuple(sorted(names)), _some_address(table))


def _some_address(table: Table) -> str | None:
    """The lowest id of the first group that has an address."""
    for name in sorted(table.groups):
        addresses = table.groups[name].addresses
        if addresses:
            return addresses[min(addresses)]
    return None


def list_unit_topics(table: Table) -> TopicList:
    """311."""
    return _list_by_flags(table, wanted=FLAG_UNIT)


def list_unit_subscription_topics(table: Table) -> TopicList:
    """312."""
    return _list_by_flags(table, wanted=FLAG_UNIT_SUBSCRIPTION)


def list_unit_subscription_topics_without_unit(table: Table) -> TopicList:
    """313."""
    return _list_by_flags(table, wanted=FLAG_UNIT_SUBSCRIPTION, unwanted=FLAG_UNIT)


def _list_by_flags(table: Table, *, wanted: int, unwanted: int = 0) -> TopicList:
    """By the flags of the first entry of each topic. Normally they are the same on all brokers."""
    mask = wanted | unwanted
    return TopicList(tuple(topic for topic in sorted(table.topics) if _first_flags(table, topic) & mask == wanted))


def _first_flags(table: Table, topic: str) -> int:
    return next(iter(table.brokers_of(topic).values())).flags
