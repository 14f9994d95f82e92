"""A snapshot as a JSON document, piece by piece: a fleet's can have a hundred megabytes. One group a line, so that it
can be read by people and compared by tools.

A snapshot of the table. One step without a pause, so all of it is of one version; what it copies are references.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from routebook.model.broker import BrokerGroup, Instance
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot, Taken
from routebook.model.topic import QueueData, TopicMapping
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
        "members": [_member(member) for member in group.members],
        "topics": {topic: _queue(queue) for topic, queue in group.queues.items()},
        "mappings": {topic: _mapping(mapping) for topic, mapping in group.mappings.items()},
    }


def _member(member: InstanceSnapshot) -> dict[str, Any]:
    version = member.data_version
    return {
        "id": member.broker_id,
        "address": member.address,
        "cluster": member.cluster,
        "ha_address": member.ha_address,
        "timeout_ms": member.timeout_ms,
        "data_version": version
        and {
            "state_version": version.state_version,
            "timestamp": version.timestamp,
            "counter": version.counter,
        },
        "filters": list(member.filters),
    }


def _queue(queue: QueueData) -> dict[str, Any]:
    said: dict[str, Any] = {
        "read_queues": queue.read_queues,
        "write_queues": queue.write_queues,
        "perm": queue.perm,
        "flags": queue.flags,
    }
    return {**said, "by_request": True} if queue.by_request else said


def _mapping(mapping: TopicMapping) -> dict[str, Any]:
    return {
        "bname": mapping.bname,
        "total_queues": mapping.total_queues,
        "epoch": mapping.epoch,
        "dirty": mapping.dirty,
        "scope": mapping.scope,
        "current_ids": {str(logical): real for logical, real in mapping.current_ids},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def take_snapshot(table: Table, taken: Taken, *, masked: Callable[[str, str], str]) -> Snapshot:
    """`masked`: what may be shown of a setting's value; one of which that is not all of it is left out."""
    secrets = [key for key, value in sorted(table.settings.items()) if masked(key, value) != value]
    instances: dict[str, list[Instance]] = defaultdict(list)
    for instance in table.instances.values():
        instances[instance.broker].append(instance)
    return Snapshot(
        taken=taken,
        groups=tuple(_group(table, table.groups[name], instances[name]) for name in sorted(table.groups)),
        key_values={namespace: dict(sorted(values.items())) for namespace, values in sorted(table.kv.items())},
        settings={key: value for key, value in sorted(table.settings.items()) if key not in secrets},
        left_out=(*_left_out(table, instances), *(f"setting {key}: a secret" for key in secrets)),
    )


def _group(table: Table, group: BrokerGroup, instances: list[Instance]) -> GroupSnapshot:
    seated = [one for one in instances if group.addresses.get(one.broker_id) == one.address]
    told = {one.broker_id for one in seated if one.cluster == group.cluster}
    members = [
        InstanceSnapshot(
            one.broker_id, one.address, one.cluster, one.ha_address, one.timeout_ms, one.data_version, one.filters
        )
        for one in seated
    ]
    # Its live entry may be another group's: two that name one address share it.
    members += [
        InstanceSnapshot(broker_id, address, group.cluster)
        for broker_id, address in group.addresses.items()
        if broker_id not in told
    ]
    return GroupSnapshot(
        name=group.name,
        cluster=group.cluster,
        zone=group.zone,
        acting_master=group.acting_master,
        members=tuple(sorted(members, key=lambda one: (one.cluster != group.cluster, one.cluster, one.broker_id))),
        queues=dict(table.queues_of(group.name)),
        mappings=dict(table.mappings_of_broker(group.name)),
    )


def _left_out(table: Table, instances: Mapping[str, list[Instance]]) -> list[str]:
    seatless = [
        f"{one.cluster}/{one.address} of {name}: an address without a seat"
        for name, found in sorted(instances.items())
        for one in found
        if name not in table.groups or table.groups[name].addresses.get(one.broker_id) != one.address
    ]
    gone = [
        f"{name}: {len(table.mappings_of_broker(name))} static mappings of a group that is gone"
        for name in sorted(table.names() - table.groups.keys())
        if table.mappings_of_broker(name)
    ]
    return seatless + gone
