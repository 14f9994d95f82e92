"""Reads for the replica, for `status` and for operators. Nothing here writes.

`read_presences` reads heartbeats, deadlines and connections of instances. However many instances are read, there are
two round trips: the second needs the names of the workers.
"""

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from routebook.model.broker import BrokerGroup, DataVersion, Instance, QueueData, TopicMapping
from routebook.model.names import split_instance_name
from routebook.store.namespace import Namespace, pairs, text, unpack_mapping
from routebook.store.workers import HistoryHead, Lease

ENTRIES_PER_PAGE: Final = 5000
"""A larger group is read in pages, each of which blocks the store for about 2 ms and is decoded in about 1 ms."""

MAPPINGS_PER_STEP: Final = 200
"""Static mappings decoded in one step, which takes about a millisecond."""

PAGING_ATTEMPTS: Final = 5
"""How often the pages are read again because the group changed meanwhile. After that, one script reads all of it."""


@dataclass(frozen=True, slots=True)
class GroupImage:
    """One group at one instant."""

    group: BrokerGroup | None
    clusters: frozenset[str]
    """The clusters that list it. The group itself belongs to the cluster that registered it first."""
    queues: Mapping[str, QueueData | None]
    """None: the topic has no entry."""
    all_queues: bool
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)


async def read_history_head(namespace: Namespace) -> HistoryHead:
    identity, meta = await namespace.client.pipeline(
        [
            ("GET", namespace.keys.table("identity")),
            ("HMGET", namespace.keys.meta, "history", "version", "ms", "schema"),
        ]
    )
    return HistoryHead(text(identity), text(meta[0]), int(meta[1] or 0), int(meta[2] or 0), int(meta[3] or 0))


async def list_broker_names(namespace: Namespace) -> list[tuple[str, list[str]]]:
    """Every cluster with the broker names that it lists. A name may have no group, as in Apache's name server."""
    clusters = sorted(text(name) for name in await namespace.client.call("SMEMBERS", namespace.keys.table("clusters")))
    if not clusters:
        return []
    listed = await namespace.client.pipeline(
        [("SMEMBERS", namespace.keys.of("cluster", cluster)) for cluster in clusters]
    )
    return [(cluster, sorted(text(name) for name in names)) for cluster, names in zip(clusters, listed, strict=True)]


async def read_groups(namespace: Namespace, wanted: Mapping[str, Collection[str] | None]) -> dict[str, GroupImage]:
    """Each group as of one instant. `wanted` names the topics to read; None reads all of them."""
    if not wanted:
        return {}
    topics = {broker: None if names is None else list(names) for broker, names in wanted.items()}
    first_pages = [
        _first_page(broker) if names is None else _GroupPage(broker, "", 0, names) for broker, names in topics.items()
    ]
    replies = await _read_group_pages(namespace, first_pages)
    images: dict[str, GroupImage] = {}
    decoded = 0
    for (broker, names), reply in zip(topics.items(), replies, strict=True):
        if names is None:
            images[broker] = await _read_other_pages(namespace, broker, reply)
        else:
            images[broker] = await _group_image(broker, reply, _unpack_named(names, reply[2]), all_queues=False)
        decoded += len(images[broker].queues)
        if decoded >= ENTRIES_PER_PAGE:
            await asyncio.sleep(0)
            decoded = 0
    return images


class _GroupPage(NamedTuple):
    """What one run of read_group reads: some topics when the cursor is empty, else one page of all of them."""

    broker: str
    cursor: str
    limit: int
    topics: Sequence[str] = ()


def _first_page(broker: str) -> _GroupPage:
    return _GroupPage(broker, "0", ENTRIES_PER_PAGE)


async def _read_group_pages(namespace: Namespace, pages: Sequence[_GroupPage]) -> list[list[Any]]:
    arguments = [[page.broker, page.cursor, str(page.limit), *page.topics] for page in pages]
    return await namespace.run_all("read_group", arguments)


async def _read_other_pages(namespace: Namespace, broker: str, first: list[Any]) -> GroupImage:
    """A large group comes in several pages. They are read again if the group changed before the last one."""
    for _ in range(PAGING_ATTEMPTS):
        queues, cursor, is_unchanged = _unpack_queues(first[2]), text(first[4]), True
        while cursor != "0" and is_unchanged:
            page = _GroupPage(broker, cursor, ENTRIES_PER_PAGE)
            (reply,) = await _read_group_pages(namespace, [page])
            queues |= _unpack_queues(reply[2])
            cursor, is_unchanged = text(reply[4]), reply[1] == first[1]
        if is_unchanged:
            return await _group_image(broker, first, queues, all_queues=True)
        (first,) = await _read_group_pages(namespace, [_first_page(broker)])
    (whole,) = await _read_group_pages(namespace, [_GroupPage(broker, "0", 0)])
    return await _group_image(broker, whole, _unpack_queues(whole[2]), all_queues=True)


@lru_cache(maxsize=16_384)
def _unpack_queue(packed: bytes) -> QueueData:
    """A fleet has a few dozen distinct values, and a load reads up to millions of entries."""
    return QueueData.unpack(packed.decode())


def _unpack_queues(flat: list[bytes]) -> dict[str, QueueData | None]:
    return dict(zip(map(bytes.decode, flat[::2]), map(_unpack_queue, flat[1::2]), strict=True))


def _unpack_named(topics: Sequence[str], values: list[bytes | None]) -> dict[str, QueueData | None]:
    return {
        topic: None if packed is None else _unpack_queue(packed) for topic, packed in zip(topics, values, strict=True)
    }


async def _group_image(
    broker: str, reply: list[Any], queues: Mapping[str, QueueData | None], *, all_queues: bool
) -> GroupImage:
    clusters, flat_group, _, flat_mappings, _ = reply
    return GroupImage(
        group=_group(broker, pairs(flat_group)),
        clusters=frozenset(text(cluster) for cluster in clusters),
        queues=queues,
        all_queues=all_queues,
        mappings=await _unpack_mappings(flat_mappings),
    )


async def _unpack_mappings(flat: list[bytes]) -> dict[str, TopicMapping]:
    mappings: dict[str, TopicMapping] = {}
    for topic, packed in zip(flat[::2], flat[1::2], strict=True):
        mappings[topic.decode()] = unpack_mapping(packed)
        if len(mappings) % MAPPINGS_PER_STEP == 0:
            await asyncio.sleep(0)
    return mappings


def _group(broker: str, fields: Mapping[str, str]) -> BrokerGroup | None:
    if "cluster" not in fields:
        return None
    addresses = {int(name[5:]): value for name, value in fields.items() if name.startswith("addr:")}
    return BrokerGroup(
        name=broker,
        cluster=fields["cluster"],
        zone=fields.get("zone"),
        acting_master=fields.get("acting") == "1",
        addresses=dict(sorted(addresses.items())),
        revision=int(fields.get("rev", "0")),
    )


class GroupCounts(NamedTuple):
    """What the store has of a group, as numbers that cost nothing to read."""

    revision: int
    fields: int
    """Number of fields that the group has: cluster, revision, flags and seats."""
    queues: int
    mappings: int


async def count_groups(namespace: Namespace, brokers: Sequence[str]) -> dict[str, GroupCounts]:
    keys = namespace.keys
    commands = [
        command
        for broker in brokers
        for command in (
            ("HGET", keys.of("broker", broker), "rev"),
            ("HLEN", keys.of("broker", broker)),
            ("HLEN", keys.of("queues", broker)),
            ("HLEN", keys.of("mapping", broker)),
        )
    ]
    replies = await namespace.client.pipeline(commands)
    found = [GroupCounts(int(rev or 0), *rest) for rev, *rest in zip(*[iter(replies)] * 4, strict=True)]
    return dict(zip(brokers, found, strict=True))


class QueuePage(NamedTuple):
    entries: Mapping[str, bytes]
    """Topic → packed queue data."""
    cursor: str
    """"0" after the last page."""


ENTRIES_PER_SCAN: Final = 1000


async def scan_queues(namespace: Namespace, broker: str, cursor: str) -> QueuePage:
    """A page of a group's queue entries as of now; pages may repeat entries. "0" begins."""
    key = namespace.keys.of("queues", broker)
    after, flat = await namespace.client.call("HSCAN", key, cursor, "COUNT", ENTRIES_PER_SCAN)
    return QueuePage({text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}, text(after))


async def read_deadlines(namespace: Namespace, instance_names: Sequence[str]) -> dict[str, int | None]:
    key = namespace.keys.table("deadlines")
    scores = await namespace.client.pipeline([("ZSCORE", key, name) for name in instance_names])
    deadlines = [None if score is None else int(float(score)) for score in scores]
    return dict(zip(instance_names, deadlines, strict=True))


async def list_mapped(namespace: Namespace) -> list[str]:
    return sorted(text(name) for name in await namespace.client.call("SMEMBERS", namespace.keys.table("mapped")))


async def list_members(namespace: Namespace) -> list[str]:
    return [
        text(instance_name)
        for instance_name in await namespace.client.call("ZRANGE", namespace.keys.table("deadlines"), 0, -1)
    ]


async def read_instances(namespace: Namespace, instance_names: Sequence[str]) -> dict[str, Instance | None]:
    if not instance_names:
        return {}
    commands: list[list[str]] = [
        ["HGETALL", namespace.keys.of("instance", instance_name)] for instance_name in instance_names
    ]
    replies = await namespace.client.pipeline([*commands, ["HMGET", namespace.keys.table("filters"), *instance_names]])
    filters = replies.pop()
    return {
        instance_name: _instance(instance_name, pairs(flat), listed)
        for instance_name, flat, listed in zip(instance_names, replies, filters, strict=True)
    }


def _instance(instance_name: str, fields: Mapping[str, str], filters: bytes | None) -> Instance | None:
    if "inc" not in fields:
        return None
    cluster, address = split_instance_name(instance_name)
    return Instance(
        cluster=cluster,
        address=address,
        broker=fields["broker"],
        broker_id=int(fields["id"]),
        incarnation=fields["inc"],
        timeout_ms=int(fields["timeout"]),
        ha_address=fields["ha"],
        data_version=DataVersion.unpack(fields["dv"]),
        filters=tuple(json.loads(filters)) if filters else (),
    )


async def read_kv_namespaces(namespace: Namespace) -> list[str]:
    return sorted(text(name) for name in await namespace.client.call("SMEMBERS", namespace.keys.table("kv")))


async def read_kv(namespace: Namespace, kv_namespace: str) -> dict[str, str]:
    return dict(pairs(await namespace.client.call("HGETALL", namespace.keys.of("kv", kv_namespace))))


async def read_settings(namespace: Namespace) -> dict[str, str]:
    return dict(pairs(await namespace.client.call("HGETALL", namespace.keys.table("settings"))))


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What `status` and `expiry status` read from the store, besides the replica."""

    lease: Lease | None
    expiry: Mapping[str, str]
    workers: Mapping[str, int]
    """Worker → rest of its lease in ms; negative if it has ended."""
    about: Mapping[str, str]
    now_ms: int


async def read_service_state(namespace: Namespace) -> ServiceState:
    leader, expiry, workers, about, paused, now = await namespace.client.pipeline(
        [
            ("GET", namespace.keys.table("leader")),
            ("HGETALL", namespace.keys.table("expiry")),
            ("ZRANGE", namespace.keys.table("workers"), 0, -1, "WITHSCORES"),
            ("HGETALL", namespace.keys.table("workers:about")),
            ("HGET", namespace.keys.meta, "paused_ms"),
            ("TIME",),
        ]
    )
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    deadline_now = now_ms - int(paused or 0)
    return ServiceState(
        lease=Lease.parse(text(leader)),
        expiry=pairs(expiry),
        workers={worker: int(float(end)) - deadline_now for worker, end in pairs(workers).items()},
        about=pairs(about),
        now_ms=now_ms,
    )


NAMES_PER_COMMAND: Final = 500
"""One command about more names would block the store for longer."""

Health = Literal["ok", "late", "silent", "disconnected", "held"]


@dataclass(frozen=True, slots=True)
class Presence:
    """All times are on the store's clock, and None where the store has no record."""

    now_ms: int
    heartbeat_ms: int | None
    since_ms: int | None
    """When this incarnation began."""
    expires_in_ms: int | None
    """Until the instance may be removed, on the clock that stops while no worker can receive heartbeats."""
    timeout_ms: int | None
    source: str
    """Address that its connection came from; empty if it is unknown."""
    worker: str
    """A worker that has a connection of the instance; empty if none has."""
    is_lost: bool
    """Its connection was lost, and the leader has not yet found out whether it is dead."""
    is_held: bool
    """It would have been removed, but removals are held."""

    @property
    def heartbeat_age_ms(self) -> int | None:
        return None if self.heartbeat_ms is None else max(self.now_ms - self.heartbeat_ms, 0)

    @property
    def health(self) -> Health:
        """`late`: more than half of the timeout has passed without a heartbeat."""
        if self.is_held:
            return "held"
        if self.expires_in_ms is None or self.expires_in_ms <= 0:
            return "silent"
        if self.is_lost:
            return "disconnected"
        is_late = self.timeout_ms is not None and self.expires_in_ms * 2 < self.timeout_ms
        return "late" if is_late else "ok"


async def read_presences(namespace: Namespace, incarnations: Mapping[str, str]) -> dict[str, Presence]:
    """`incarnations`: instance name -> its incarnation. A session of another incarnation is not this instance's."""
    if not incarnations:
        return {}
    names, keys = list(incarnations), namespace.keys
    parts = [names[at : at + NAMES_PER_COMMAND] for at in range(0, len(names), NAMES_PER_COMMAND)]
    tables = ("heartbeats", "deadlines", "held")
    replies = iter(
        await namespace.client.pipeline(
            [
                ("TIME",),
                ("HGET", keys.meta, "paused_ms"),
                ("ZRANGE", keys.table("workers"), 0, -1),
                *(("ZMSCORE", keys.table(table), *part) for table in tables for part in parts),
                *(("HMGET", keys.table("lost"), *part) for part in parts),
                *(("HMGET", keys.of("instance", name), "since", "source", "timeout") for name in names),
            ]
        )
    )
    now, paused, workers = next(replies), next(replies), [text(worker) for worker in next(replies)]
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    deadline_now = now_ms - int(paused or 0)
    heartbeats, deadlines, held, lost = (_joined(replies, parts) for _ in range(4))
    connected = await _connected_workers(namespace, workers, parts, incarnations)
    found = {}
    for at, (name, (since, source, timeout)) in enumerate(zip(names, replies, strict=True)):
        deadline = _number(deadlines[at])
        found[name] = Presence(
            now_ms=now_ms,
            heartbeat_ms=_number(heartbeats[at]),
            since_ms=_number(since),
            expires_in_ms=None if deadline is None else deadline - deadline_now,
            timeout_ms=_number(timeout),
            source=text(source),
            worker=connected.get(name, ""),
            is_lost=lost[at] is not None,
            is_held=held[at] is not None,
        )
    return found


async def _connected_workers(
    namespace: Namespace, workers: Sequence[str], parts: Sequence[list[str]], incarnations: Mapping[str, str]
) -> dict[str, str]:
    """Instance name -> a worker with a session of its incarnation."""
    commands = [("HMGET", namespace.keys.of("sessions", worker), *part) for worker in workers for part in parts]
    replies = iter(await namespace.client.pipeline(commands))
    found = {}
    for worker in workers:
        for name, session in zip(incarnations, _joined(replies, parts), strict=True):
            if session is not None and text(session).partition(" ")[2] == incarnations[name]:
                found[name] = worker
    return found


def _joined(replies: Iterator[Any], parts: Sequence[list[str]]) -> list[Any]:
    return [value for _ in parts for value in next(replies)]


def _number(value: bytes | None) -> int | None:
    return int(float(value)) if value else None
