"""FastAPI dependencies of the routers: the parts of the worker, `min_version`, paging, and the names in paths."""

import asyncio
import base64
import binascii
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Final, cast

from fastapi import Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant

from routebook.console.live import Console
from routebook.errors import InvalidInputError
from routebook.http_api.watch_streams import Watchers
from routebook.listeners.peers import UNKNOWN, Peer, Peers
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.registry.status import warnings_of
from routebook.settings.live import LiveSettings

# -- parts of the worker

MAX_QUESTIONS: Final = 4
"""Requests of this worker that may wait for the pipeline's answers at the same time."""


@dataclass(frozen=True, slots=True)
class AppContext:
    """What the path operations work with. `create_app` puts it into the application's state."""

    registry: Registry
    live_settings: LiveSettings
    metrics: Metrics
    watchers: Watchers
    peers: Peers
    console: Console
    questions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_QUESTIONS))
    """Held while a request waits for the pipeline."""

    def peer_of(self, request: Request) -> Peer:
        """The costs of the request's address."""
        return self.peers.get(request.client.host if request.client else UNKNOWN)


def context_of(request: Request) -> AppContext:
    return cast("AppContext", request.app.state.context)


# Dependencies are coroutines, since FastAPI would run a plain function in a thread: slower, and beside the event loop.


async def _context_of(request: Request) -> AppContext:
    return context_of(request)


async def _registry_of(request: Request) -> Registry:
    return context_of(request).registry


async def _live_settings_of(request: Request) -> LiveSettings:
    return context_of(request).live_settings


RegistryDep = Annotated[Registry, Depends(_registry_of)]
LiveSettingsDep = Annotated[LiveSettings, Depends(_live_settings_of)]
ContextDep = Annotated[AppContext, Depends(_context_of)]


# -- freshness and min_version

FRESHNESS: Final = "routebook.freshness"
"""Scope key: the freshness headers, set by a path operation before it reads the table."""


def freshness_headers(registry: Registry) -> list[tuple[str, str]]:
    """Version and history of this worker's table, its age while the store does not answer, and why the answer may be
    wrong or old.
    """
    headers = [
        ("x-routebook-version", str(registry.replica.version)),
        ("x-routebook-history", registry.replica.history),
    ]
    stale_seconds = registry.stale_seconds
    if stale_seconds:
        headers.append(("x-routebook-stale-seconds", str(math.ceil(stale_seconds))))
    if warnings := warnings_of(registry.replica, registry.store_health):
        headers.append(("x-routebook-warnings", ", ".join(warnings)))
    return headers


async def wait_for_min_version(
    request: Request,
    registry: RegistryDep,
    min_version: Annotated[
        int | None,
        Query(
            ge=0,
            le=2**63 - 1,
            description="Wait until this worker has seen this version. When it does not arrive in time, the "
            "response is 504.",
        ),
    ] = None,
) -> None:
    """Takes the freshness headers before the table is read: the answer may be newer than they state, never older."""
    if min_version is not None:
        await registry.wait_for_version(min_version)
    request.scope[FRESHNESS] = freshness_headers(registry)


WAIT_FOR_MIN_VERSION: Final = Depends(wait_for_min_version)


# -- dry runs and unknown parameters

DryRunFlag = Annotated[
    bool, Query(description="Only report what would change. Needs the same permission; nothing changes.")
]


def refuse_unknown_parameters(request: Request, known: Collection[str]) -> None:
    """A filter or a `dry_run` with a typing error would otherwise have no effect, silently."""
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; the nearest is {near[0]}" if near else ""
            raise InvalidInputError("query parameter", name, f"{', '.join(sorted(known)) or 'none here'}{hint}")


async def check_query_parameters(request: Request) -> None:
    """Compares with the parameters that the path operation declares."""
    route = request.scope["route"]
    # RocketMQ's peers append parameters of their own, such as `?nofix=1`, when they poll their list of name servers.
    if request.scope["query_string"] and not route.path.startswith("/rocketmq/"):
        refuse_unknown_parameters(request, set(_query_names(route.dependant)))


def _query_names(dependant: Dependant) -> Iterator[str]:
    """The query parameters of the path operation and of all its dependencies."""
    yield from (one.alias for one in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_names(inner)


CHECK_QUERY_PARAMETERS: Final = Depends(check_query_parameters)


# -- paging

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. The cursor is the last name of the previous page, so paging stays correct while the table
    changes.
    """

    limit: int
    after: str | None

    def of(self, names: Iterable[str]) -> tuple[Sequence[str], str | None]:
        """The names of this page, sorted, and the cursor of the next page."""
        ordered = sorted(names)
        start = bisect_right(ordered, self.after) if self.after is not None else 0
        chosen = ordered[start : start + self.limit]
        is_last = start + self.limit >= len(ordered)
        return chosen, None if is_last else _encode_cursor(chosen[-1])


def page_of(limit: int, cursor: str | None = None) -> Page:
    return Page(limit, _decode_cursor(cursor) if cursor else None)


async def _page_of(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items.")] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")] = None,
) -> Page:
    return page_of(limit, cursor)


PageDep = Annotated[Page, Depends(_page_of)]


def _encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (UnicodeError, binascii.Error) as error:
        raise InvalidInputError("cursor", cursor, "the `next_cursor` of the previous page") from error


# -- names in paths; `model.names` has the rules for what they may contain

TopicName = Annotated[str, Path(description="Name of a topic.", examples=["TopicA"])]
ClusterName = Annotated[str, Path(description="Name of a cluster.", examples=["DefaultCluster"])]
BrokerName = Annotated[str, Path(description="Broker name, shared by all brokers of a group.", examples=["broker-a"])]
BrokerId = Annotated[
    int, Path(ge=0, le=2**63 - 1, description="Broker id: the seat in the group. 0 is the master.", examples=[0])
]
KvNamespace = Annotated[str, Path(description="A key-value namespace.", examples=["ORDER_TOPIC_CONFIG"])]
KvKey = Annotated[str, Path(description="A key.", examples=["TopicA"])]
ClusterFilter = Annotated[
    str | None, Query(description="List only what belongs to this cluster.", examples=["DefaultCluster"])
]

# Topic names may contain slashes: some fleets are older than RocketMQ's rules for names.
TOPIC_PATH: Final = "/v1/topics/{topic:path}"
