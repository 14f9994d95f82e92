"""Reads everything that one name server reports about its fleet, at about one time. It can become a snapshot.

The shared lists come first, then the route of each topic, many at a time. Requests that releases before 5.0 do not know
come last: those servers do not respond to them, so each costs its whole timeout.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, BrokerGroup, QueueData, TopicMapping, TopicRoute
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot, SnapshotOrigin
from routebook.protocol.frame import RequestCode
from routebook.remoting_client import Declined, NameServer


@dataclass(frozen=True, slots=True)
class ServerState:
    """What one name server reports."""

    groups: Mapping[str, BrokerGroup]
    clusters: Mapping[str, frozenset[str]]
    topics: frozenset[str] | None
    """None when the server does not list its topics."""
    routes: Mapping[str, TopicRoute | None] = field(default_factory=dict)
    """By topic, for all topics that were requested; None when the server has no such topic."""
    member_groups: Mapping[str, Mapping[int, str]] | None = None
    """Addresses by broker id, by group name (request 901)."""
    listings: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Topics by request code: 304 and 311 to 313, without codes that the server declines."""
    key_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By namespace, without those that the server declines."""
    settings: Mapping[str, str] | None = None
    declined: Mapping[str, str] = field(default_factory=dict)
    """Requests that the server declined, with its reason."""

    def with_routes(self, routes: Mapping[str, TopicRoute | None]) -> Self:
        return replace(self, routes=routes)


Item = TypeVar("Item")


async def run_concurrently(
    items: Iterable[Item], do: Callable[[Item], Awaitable[None]], *, max_concurrent: int
) -> None:
    """Calls `do` for every item. The first failure cancels the other calls."""
    remaining = iter(items)

    async def work() -> None:
        for item in remaining:
            await do(item)

    tasks = [asyncio.create_task(work()) for _ in range(max_concurrent)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


MAX_CONCURRENT: Final = 32
"""Concurrent requests to one server: far fewer than a reference server queues, and enough to keep it busy."""
UNKNOWN_CODE_MS: Final = 1000
"""Timeout of requests that releases before 5.0 do not respond to."""

LISTINGS: Final = (
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)

Progress = Callable[[int, int], None]
"""Called with (finished, total)."""


def ignore_progress(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What is read besides the route table itself."""

    namespaces: tuple[str, ...] = (ORDER_TOPIC_NAMESPACE,)
    settings: bool = False


async def collect_lists(server: NameServer, options: CollectOptions) -> ServerState:
    """Everything except routes and member groups."""
    declined: dict[str, str] = {}
    groups, clusters = await server.cluster_info()
    listed = await server.topics()
    if isinstance(listed, Declined):
        declined["list of all topics (206)"] = str(listed)
        topics = await _topics_by_cluster(server, clusters)
    else:
        topics = listed
    listings: dict[int, frozenset[str]] = {}
    for code in LISTINGS:
        listing = await server.listing(code)
        if isinstance(listing, Declined):
            declined[f"listing {int(code)}"] = str(listing)
        else:
            listings[int(code)] = listing
    state = ServerState(groups=groups, clusters=clusters, topics=topics, listings=listings, declined=declined)
    return await _collect_values(server, options, state)


async def _topics_by_cluster(server: NameServer, clusters: Iterable[str]) -> frozenset[str] | None:
    """A server may allow this list although it declines the list of all topics."""
    found: set[str] = set()
    for cluster in clusters:
        topics = await server.topics_of_cluster(cluster)
        if isinstance(topics, Declined):
            return None
        found |= topics
    return frozenset(found)


async def _collect_values(server: NameServer, options: CollectOptions, state: ServerState) -> ServerState:
    declined = dict(state.declined)
    key_values = {}
    for namespace in options.namespaces:
        table = await server.key_values(namespace)
        if isinstance(table, Declined):
            declined[f"key-values of {namespace}"] = str(table)
        else:
            key_values[namespace] = table
    settings = await server.settings() if options.settings else None
    if isinstance(settings, Declined):
        declined["settings (319)"] = str(settings)
        settings = None
    return replace(state, key_values=key_values, settings=settings, declined=declined)


async def collect_routes(
    server: NameServer, topics: Iterable[str], progress: Progress = ignore_progress
) -> dict[str, TopicRoute | None]:
    names = sorted(topics)
    found: dict[str, TopicRoute | None] = {}

    async def collect(topic: str) -> None:
        found[topic] = await server.route(topic)
        progress(len(found), len(names))

    await run_concurrently(names, collect, max_concurrent=MAX_CONCURRENT)
    return found


async def collect_member_groups(server: NameServer, state: ServerState) -> ServerState:
    """Stops at the first `Declined`, since the server then does not know the request."""
    found = {}
    for name, group in sorted(state.groups.items()):
        member_group = await server.member_group(group.cluster, name, timeout_ms=UNKNOWN_CODE_MS)
        if isinstance(member_group, Declined):
            return replace(state, declined={**state.declined, "members of a group (901)": str(member_group)})
        found[name] = member_group
    return replace(state, member_groups=found)


def snapshot_of(state: ServerState, address: str) -> Snapshot:
    """Without data versions, timeouts and replication addresses, which no request returns; registrations add them.
    Settings are left out too, because they belong to another product.
    """
    queues: dict[str, dict[str, QueueData]] = defaultdict(dict)
    mappings: dict[str, dict[str, TopicMapping]] = defaultdict(dict)
    filters: dict[str, tuple[str, ...]] = {}
    for topic, route in sorted(state.routes.items()):
        if route is None:
            continue
        filters |= route.filters
        for broker, queue in route.queues.items():
            queues[broker][topic] = queue
        for broker, mapping in route.mappings.items():
            mappings[broker][topic] = mapping
    groups = [_group(group, filters, queues[name], mappings[name]) for name, group in sorted(state.groups.items())]
    removed_groups = sorted((queues.keys() | mappings.keys()) - state.groups.keys())
    return Snapshot(
        taken=SnapshotOrigin(source=address),
        groups=tuple(groups),
        key_values={namespace: dict(values) for namespace, values in state.key_values.items() if values},
        left_out=(
            *(f"group {name}: topics or mappings of a removed group" for name in removed_groups),
            *(f"{request}: declined ({reason})" for request, reason in state.declined.items()),
        ),
    )


def _group(
    group: BrokerGroup,
    filters: dict[str, tuple[str, ...]],
    queues: dict[str, QueueData],
    mappings: dict[str, TopicMapping],
) -> GroupSnapshot:
    instances = (
        InstanceSnapshot(broker_id, address, group.cluster, filters=filters.get(address, ()))
        for broker_id, address in sorted(group.addresses.items())
    )
    return GroupSnapshot(group.name, group.cluster, group.zone, group.acting_master, tuple(instances), queues, mappings)
