"""What another name server says, as a snapshot: for a fleet that moves."""

from collections import defaultdict

from routebook.comparing.said import Said
from routebook.model.broker import BrokerGroup
from routebook.model.snapshot import GroupSnapshot, MemberSnapshot, Snapshot, Taken
from routebook.model.topic import QueueData, TopicMapping


def snapshot_of(said: Said, address: str) -> Snapshot:
    """Without what no request tells: data versions, timeouts, replication addresses. The brokers bring these. Settings
    are another product's, so they are not taken either.
    """
    queues: dict[str, dict[str, QueueData]] = defaultdict(dict)
    mappings: dict[str, dict[str, TopicMapping]] = defaultdict(dict)
    filters: dict[str, tuple[str, ...]] = {}
    for topic, route in sorted(said.routes.items()):
        if route is None:
            continue
        filters |= route.filters
        for broker, queue in route.queues.items():
            queues[broker][topic] = queue
        for broker, mapping in route.mappings.items():
            mappings[broker][topic] = mapping
    groups = [_group(group, filters, queues[name], mappings[name]) for name, group in sorted(said.groups.items())]
    gone = sorted((queues.keys() | mappings.keys()) - said.groups.keys())
    return Snapshot(
        taken=Taken(source=address),
        groups=tuple(groups),
        key_values={namespace: dict(values) for namespace, values in said.key_values.items() if values},
        left_out=(
            *(f"group {name}: topics or mappings of a group that is gone" for name in gone),
            *(f"{question}: declined ({reason})" for question, reason in said.declined.items()),
        ),
    )


def _group(
    group: BrokerGroup,
    filters: dict[str, tuple[str, ...]],
    queues: dict[str, QueueData],
    mappings: dict[str, TopicMapping],
) -> GroupSnapshot:
    members = (
        MemberSnapshot(broker_id, address, group.cluster, filters=filters.get(address, ()))
        for broker_id, address in sorted(group.addresses.items())
    )
    return GroupSnapshot(group.name, group.cluster, group.zone, group.acting_master, tuple(members), queues, mappings)
