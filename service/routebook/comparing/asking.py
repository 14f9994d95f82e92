"""Asks one name server everything.

The shared lists first; then a route for each topic, many at a time; what releases before 5.0 do not know comes last,
since those stay silent and each such question costs its time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from routebook.client.name_server import Declined, NameServer
from routebook.comparing.at_once import each
from routebook.comparing.said import Said
from routebook.model.route import TopicRoute
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.wire.codes import RequestCode

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
