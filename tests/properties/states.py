"""The whole state of a namespace as plain dictionaries, from the store, the reference model or a replayed history.

This module reads the store key by key as the documents describe the keys, without code under test.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from routebook.model.broker import DataVersion, QueueData, TopicMapping
from routebook.model.names import join_instance_name
from routebook.store.namespace import Namespace
from tests.reference.registry import ReferenceRegistry

Queues = dict[str, dict[str, QueueData]]


@dataclass(frozen=True)
class GroupState:
    cluster: str
    zone: str | None
    acting_master: bool
    addresses: dict[int, str]


@dataclass(frozen=True)
class InstanceState:
    broker: str
    broker_id: int
    incarnation: str
    timeout_ms: int
    ha_address: str
    data_version: DataVersion | None


@dataclass
class RouteTable:
    """What lookups show, without filters and mappings. All of it can be derived from the history."""

    clusters: dict[str, set[str]] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    queues: Queues = field(default_factory=dict)


@dataclass
class State(RouteTable):
    mappings: dict[str, dict[str, TopicMapping]] = field(default_factory=dict)
    """Host broker → topic → mapping."""
    instances: dict[str, InstanceState] = field(default_factory=dict)
    filters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kv: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def route_table(self) -> RouteTable:
        return RouteTable(self.clusters, self.groups, self.queues)

    def with_incarnations(self, names: dict[str, str]) -> "State":
        """Replaces random incarnations by those of the reference model."""
        instances = {
            name: replace(instance, incarnation=names.get(instance.incarnation, instance.incarnation))
            for name, instance in self.instances.items()
        }
        return replace(self, instances=instances)


def state_of_reference(reference: ReferenceRegistry) -> State:
    queues: Queues = {}
    for topic, entries in reference.topics.items():
        for broker, data in entries.items():
            queues.setdefault(broker, {})[topic] = data
    mappings: dict[str, dict[str, TopicMapping]] = {}
    for topic, hosts in reference.mappings.items():
        for host, mapping in hosts.items():
            mappings.setdefault(host, {})[topic] = mapping
    return State(
        clusters={cluster: set(names) for cluster, names in reference.clusters.items()},
        groups={
            name: GroupState(group.cluster, group.zone, group.acting_master, dict(group.addresses))
            for name, group in reference.groups.items()
        },
        queues=queues,
        mappings=mappings,
        instances={
            join_instance_name(cluster, address): InstanceState(
                entry.broker,
                entry.broker_id,
                entry.incarnation,
                entry.timeout_ms,
                entry.ha_address,
                entry.data_version,
            )
            for (cluster, address), entry in reference.instances.items()
        },
        filters={join_instance_name(*key): filters for key, filters in reference.filters.items()},
        kv={namespace: dict(values) for namespace, values in reference.kv.items()},
    )


async def state_of_store(namespace: Namespace) -> State:
    """Reads everything in a few pipelines. The tests do not write at the same time."""
    keys = [key.decode() async for key in keys_of(namespace)]
    prefix = namespace.keys.table("")
    named = {key.removeprefix(prefix): key for key in keys}
    hashes = {name: key for name, key in named.items() if name.startswith(_HASHES) or name == "filters"}
    sets = {name: key for name, key in named.items() if name.startswith("cluster:") or name in _NAMED_SETS}
    values = await namespace.client.pipeline([("HGETALL", key) for key in hashes.values()]) if hashes else []
    members = await namespace.client.pipeline([("SMEMBERS", key) for key in sets.values()]) if sets else []
    tables = {name: _mapping(flat) for name, flat in zip(hashes, values, strict=True)}
    listed = {name: {member.decode() for member in found} for name, found in zip(sets, members, strict=True)}
    state = _assemble(tables, listed)
    for name in ("heartbeats", "deadlines"):
        members = await namespace.client.call("ZRANGE", namespace.keys.table(name), 0, -1)
        assert {member.decode() for member in members} == set(state.instances), name
    return state


_HASHES = ("broker:", "queues:", "mapping:", "instance:", "kv:")
_NAMED_SETS = {"clusters", "kv", "mapped"}


async def keys_of(namespace: Namespace) -> Any:
    cursor: bytes = b"0"
    while True:
        cursor, found = await namespace.client.call("SCAN", cursor, "MATCH", namespace.keys.table("*"), "COUNT", 1000)
        for key in found:
            yield key
        if cursor in {b"0", 0}:
            return


def _mapping(flat: list[bytes]) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _assemble(tables: dict[str, dict[str, str]], listed: dict[str, set[str]]) -> State:
    def named(kind: str) -> dict[str, dict[str, str]]:
        return {name.removeprefix(kind): table for name, table in tables.items() if name.startswith(kind)}

    clusters = {cluster: listed.get(f"cluster:{cluster}", set()) for cluster in listed.get("clusters", set())}
    mappings = {
        host: {topic: read_mapping(text) for topic, text in table.items()} for host, table in named("mapping:").items()
    }
    assert listed.get("mapped", set()) == set(mappings)
    assert {f"cluster:{cluster}" for cluster in clusters} == {name for name in listed if name.startswith("cluster:")}
    kv = named("kv:")
    assert set(kv) <= listed.get("kv", set())
    return State(
        clusters=clusters,
        groups={name: read_group(table) for name, table in named("broker:").items()},
        queues={
            broker: {topic: QueueData.unpack(packed) for topic, packed in table.items()}
            for broker, table in named("queues:").items()
        },
        mappings=mappings,
        instances={name: read_instance(table) for name, table in named("instance:").items()},
        filters={name: tuple(json.loads(text)) for name, text in tables.get("filters", {}).items()},
        kv={namespace: kv.get(namespace, {}) for namespace in listed.get("kv", set())},
    )


def read_group(table: dict[str, str]) -> GroupState:
    addresses = {int(name.removeprefix("addr:")): value for name, value in table.items() if name.startswith("addr:")}
    return GroupState(table["cluster"], table.get("zone"), table.get("acting") == "1", addresses)


def read_instance(table: dict[str, str]) -> InstanceState:
    return InstanceState(
        broker=table["broker"],
        broker_id=int(table["id"]),
        incarnation=table["inc"],
        timeout_ms=int(table["timeout"]),
        ha_address=table["ha"],
        data_version=DataVersion.unpack(table["dv"]),
    )


def read_mapping(text: str) -> TopicMapping:
    read = json.loads(text)
    return TopicMapping(
        topic=read["topic"],
        bname=read["bname"],
        total_queues=read["totalQueues"],
        epoch=read["epoch"],
        dirty=read["dirty"],
        scope=read["scope"],
        current_ids=tuple((logical, physical) for logical, physical in read["currIdMap"]),
    )
