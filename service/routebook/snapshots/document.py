"""A snapshot as a JSON document, piece by piece: a fleet's can have a hundred megabytes. One group a line, so that it
can be read by people and compared by tools.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from routebook.model.snapshot import GroupSnapshot, MemberSnapshot, Snapshot
from routebook.model.topic import QueueData, TopicMapping

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


def _member(member: MemberSnapshot) -> dict[str, Any]:
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
