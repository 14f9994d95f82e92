"""All that one name server says about its fleet, at about one time.

Many askings, a bounded number of them under way.

Asks one name server everything.

The shared lists first; then a route for each topic, many at a time; what releases before 5.0 do not know comes last,
since those stay silent and each such question costs its time.

What another name server says, as a snapshot: for a fleet that moves.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from routebook.client.name_server import Declined, NameServer
from routebook.model.broker import BrokerGroup, TopicRoute
from routebook.model.snapshot import GroupSnapshot, MemberSnapshot, Snapshot, Taken
from routebook.model.topic import ORDER_TOPIC_NAMESPACE, QueueData, TopicMapping
from routebook.protocol.command import RequestCode


@dataclass(frozen=True, slots=True)
class Said:
    groups: Mapping[str, BrokerGroup]
    clusters: Mapping[str, frozenset[str]]
    topics: frozenset[str] | None
    """None: it does not list them."""
    routes: Mapping[str, TopicRoute | None] = field(default_factory=dict)
    """Of the topics that were asked for; None is "no such topic"."""
    members: Mapping[str, Mapping[int, str]] | None = None
    """By group name (901)."""
    listings: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """By request code: 304, 311 to 313. A code that it declines is missing."""
    key_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By namespace; one that it declines is missing."""
    settings: Mapping[str, str] | None = None
    declined: Mapping[str, str] = field(default_factory=dict)
    """What it was asked and does not say, with its reason."""

    def with_routes(self, routes: Mapping[str, TopicRoute | None]) -> "Said":
        return replace(self, routes=routes)


Item = TypeVar("Item")


async def each(items: Iterable[Item], do: Callable[[Item], Awaitable[None]], *, at_once: int) -> None:
    """The first failure ends all."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await do(item)

    tasks = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


AT_ONCE: Final = 32
"""Requests on the way to one server. Far below the queue of a reference server, enough to keep it occupied."""
UNKNOWN_CODE_MS: Final = 1000

LISTINGS: Final = (
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)

Progress = Callable[[int, int], None]
"""Done, of how many."""


def no_progress(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked besides the table itself."""

    namespaces: tuple[str, ...] = (ORDER_TOPIC_NAMESPACE,)
    settings: bool = False


async def ask_lists(server: NameServer, questions: Questions) -> Said:
    """All but routes and members."""
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
    said = Said(groups=groups, clusters=clusters, topics=topics, listings=listings, declined=declined)
    return await _ask_values(server, questions, said)


async def _topics_by_cluster(server: NameServer, clusters: Iterable[str]) -> frozenset[str] | None:
    """A server may allow this list and not the other."""
    found: set[str] = set()
    for cluster in clusters:
        topics = await server.topics_of_cluster(cluster)
        if isinstance(topics, Declined):
            return None
        found |= topics
    return frozenset(found)


async def _ask_values(server: NameServer, questions: Questions, said: Said) -> Said:
    declined = dict(said.declined)
    key_values = {}
    for namespace in questions.namespaces:
        table = await server.key_values(namespace)
        if isinstance(table, Declined):
            declined[f"key-values of {namespace}"] = str(table)
        else:
            key_values[namespace] = table
    settings = await server.settings() if questions.settings else None
    if isinstance(settings, Declined):
        declined["settings (319)"] = str(settings)
        settings = None
    return replace(said, key_values=key_values, settings=settings, declined=declined)


async def ask_routes(
    server: NameServer, topics: Iterable[str], progress: Progress = no_progress
) -> dict[str, TopicRoute | None]:
    wanted = sorted(topics)
    found: dict[str, TopicRoute | None] = {}

    async def ask(topic: str) -> None:
        found[topic] = await server.route(topic)
        progress(len(found), len(wanted))

    await each(wanted, ask, at_once=AT_ONCE)
    return found


async def ask_members(server: NameServer, said: Said) -> Said:
    """The first answer tells whether this server knows the question."""
    found = {}
    for name, group in sorted(said.groups.items()):
        members = await server.members(group.cluster, name, timeout_ms=UNKNOWN_CODE_MS)
        if isinstance(members, Declined):
            return replace(said, declined={**said.declined, "members of a group (901)": str(members)})
        found[name] = members
    return replace(said, members=found)


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
