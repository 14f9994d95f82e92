"""What is shown though the store has lost it. A deletion of such a thing finds nothing in the store, so it has to say
that the history shall tell it all the same.
"""

from routebook.replica.replica import Replica
from routebook.replica.table import Table


def is_carried_seat(replica: Replica, broker: str, address: str) -> bool:
    return replica.is_recovering and address in _addresses(replica.view, broker) - _addresses(replica.table, broker)


def carried_brokers_of(replica: Replica, topic: str, cluster: str | None) -> dict[str, str]:
    """Those whose entry for the topic is carried, of one cluster or (None) of all, with the clusters they belong to."""
    if not replica.is_recovering:
        return {}
    listed = None if cluster is None else replica.view.clusters.get(cluster, set())
    return {
        name: group.cluster
        for name in replica.view.brokers_of(topic)
        if (group := replica.view.groups.get(name)) is not None
        and topic not in replica.table.queues_of(name)
        and (listed is None or name in listed)
    }


def is_carried_key(replica: Replica, namespace: str, key: str) -> bool:
    return (
        replica.is_recovering
        and key in replica.view.kv.get(namespace, {})
        and key not in replica.table.kv.get(namespace, {})
    )


def _addresses(table: Table, broker: str) -> set[str]:
    group = table.groups.get(broker)
    return set(group.addresses.values()) if group else set()
