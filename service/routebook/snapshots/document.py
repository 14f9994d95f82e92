"""Takes a snapshot of the table, and writes a snapshot as a JSON document.

A snapshot is taken in one step of the event loop, so all of it is of one version; it copies references only. The
document is encoded in parts, since that of a fleet can have a hundred megabytes. It has one group per line, so that
people can read it and tools can compare it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from routebook.model.broker import BrokerGroup, Instance, QueueData, TopicMapping
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot, SnapshotOrigin
from routebook.registry.registry import Registry
from routebook.replica.table import Table

FORMAT: Final = 1


def encode_document(snapshot: Snapshot) -> Iterator[bytes]:
    taken = snapshot.taken
    head = {
        "snapshot": FORMAT,
        "taken": {
            "source": taken.source,
            "namespace": taken.namespace,
            "history": taken.history,
            "version": taken.version,
            "ms": taken.ms,
        },
        "left_out": list(snapshot.left_out),
        "settings": dict(snapshot.settings),
        "key_values": {namespace: dict(values) for namespace, values in snapshot.key_values.items()},
    }
    yield _json(head)[:-1] + b',"groups":['
    separator = b"\n"
    for group in snapshot.groups:
        yield separator + _json(group_document(group))
        separator = b",\n"
    yield b"\n]}\n"


def group_document(group: GroupSnapshot) -> dict[str, Any]:
    return {
        "name": group.name,
        "cluster": group.cluster,
        "zone": group.zone,
        "acting_master": group.acting_master,
        "members": [_instance(instance) for instance in group.instances],
        "topics": {topic: _queue(queue) for topic, queue in group.queues.items()},
        "mappings": {topic: _mapping(mapping) for topic, mapping in group.mappings.items()},
    }


def _instance(instance: InstanceSnapshot) -> dict[str, Any]:
    version = instance.data_version
    return {
        "id": instance.broker_id,
        "address": instance.address,
        "cluster": instance.cluster,
        "ha_address": instance.ha_address,
        "timeout_ms": instance.timeout_ms,
        "data_version": version
        and {
            "state_version": version.state_version,
            "timestamp": version.timestamp,
            "counter": version.counter,
        },
        "filters": list(instance.filters),
    }


def _queue(queue: QueueData) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "read_queues": queue.read_queues,
        "write_queues": queue.write_queues,
        "perm": queue.perm,
        "flags": queue.flags,
    }
    return {**fields, "by_request": True} if queue.by_request else fields


def _mapping(mapping: TopicMapping) -> dict[str, Any]:
    return {
        "bname": mapping.bname,
        "total_queues": mapping.total_queues,
        "epoch": mapping.epoch,
        "dirty": mapping.dirty,
        "scope": mapping.scope,
        "current_ids": {str(logical): physical for logical, physical in mapping.current_ids},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def take_snapshot(registry: Registry) -> Snapshot:
    table = registry.view
    secrets = [key for key, value in sorted(table.settings.items()) if registry.live.masked(key, value) != value]
    instances: dict[str, list[Instance]] = defaultdict(list)
    for instance in table.instances.values():
        instances[instance.broker].append(instance)
    return Snapshot(
        taken=SnapshotOrigin(
            "routebook",
            registry.namespace,
            registry.replica.history,
            registry.replica.version,
            registry.replica.position.ms,
        ),
        groups=tuple(_group(table, table.groups[name], instances[name]) for name in sorted(table.groups)),
        key_values={namespace: dict(sorted(values.items())) for namespace, values in sorted(table.kv.items())},
        settings={key: value for key, value in sorted(table.settings.items()) if key not in secrets},
        left_out=(*_left_out(table, instances), *(f"setting {key}: it is secret" for key in secrets)),
    )


def _group(table: Table, group: BrokerGroup, instances: list[Instance]) -> GroupSnapshot:
    with_seat = [each for each in instances if group.addresses.get(each.broker_id) == each.address]
    found_ids = {each.broker_id for each in with_seat if each.cluster == group.cluster}
    snapshots = [
        InstanceSnapshot(
            each.broker_id,
            each.address,
            each.cluster,
            each.ha_address,
            each.timeout_ms,
            each.data_version,
            each.filters,
        )
        for each in with_seat
    ]
    # When two groups register the same address, its instance belongs to only one of them.
    snapshots += [
        InstanceSnapshot(broker_id, address, group.cluster)
        for broker_id, address in group.addresses.items()
        if broker_id not in found_ids
    ]
    return GroupSnapshot(
        name=group.name,
        cluster=group.cluster,
        zone=group.zone,
        acting_master=group.acting_master,
        instances=tuple(
            sorted(snapshots, key=lambda each: (each.cluster != group.cluster, each.cluster, each.broker_id))
        ),
        queues=dict(table.queues_of(group.name)),
        mappings=dict(table.mappings_of_broker(group.name)),
    )


def _left_out(table: Table, instances: Mapping[str, list[Instance]]) -> list[str]:
    without_seat = [
        f"{each.cluster}/{each.address} of {name}: an address without a seat"
        for name, found in sorted(instances.items())
        for each in found
        if name not in table.groups or table.groups[name].addresses.get(each.broker_id) != each.address
    ]
    of_removed_groups = [
        f"{name}: {len(table.mappings_of_broker(name))} static mappings of a removed group"
        for name in sorted(table.names() - table.groups.keys())
        if table.mappings_of_broker(name)
    ]
    return without_seat + of_removed_groups
