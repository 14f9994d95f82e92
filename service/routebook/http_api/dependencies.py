"""What `create_app` was given, handed to the routers as dependencies; nothing is fetched from a module.

Every answer of a read says how new it is; `min_version` lets a reader wait for what another worker has
seen.

Lists in pages. A cursor names the last item given, so pages stay right while the table changes.

Names in paths, with the texts and examples of the pages. What is legal says the model.
"""

import base64
import binascii
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import Depends, Path, Query, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.errors import InvalidInputError
from routebook.http_api.watch_streams import Watchers
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.settings.live import LiveSettings


@dataclass(frozen=True, slots=True)
class Parts:
    registry: Registry
    live_settings: LiveSettings
    metrics: Metrics
    watchers: Watchers


def parts_of(request: Request) -> Parts:
    return cast("Parts", request.app.state.parts)


def _registry_of(request: Request) -> Registry:
    return parts_of(request).registry


def _live_settings_of(request: Request) -> LiveSettings:
    return parts_of(request).live_settings


RegistryOf = Annotated[Registry, Depends(_registry_of)]
LiveSettingsOf = Annotated[LiveSettings, Depends(_live_settings_of)]
PartsOf = Annotated[Parts, Depends(parts_of)]


READ_PATHS: Final = ("/v1/", "/rocketmq/")
_MARK: Final = "routebook.mark"
_NEVER_ENDS: Final = "/v1/watch"


def marks(registry: Registry) -> list[tuple[str, str]]:
    """Version, history, and age when out of touch."""
    said = [("x-routebook-version", str(registry.version)), ("x-routebook-history", registry.history)]
    stale_seconds = registry.stale_seconds
    if stale_seconds:
        said.append(("x-routebook-stale-seconds", str(math.ceil(stale_seconds))))
    return said


async def wait_until_seen(
    request: Request,
    registry: RegistryOf,
    min_version: Annotated[
        int | None,
        Query(
            ge=0,
            le=2**63 - 1,
            description="Wait, bounded, until this worker has seen this version; else 504.",
        ),
    ] = None,
) -> None:
    """The mark is taken before the answer is made: an answer may be newer than it says, never older."""
    if min_version is not None:
        await registry.wait_for_version(min_version)
    request.scope[_MARK] = marks(registry)


Seen = Depends(wait_until_seen)


class ReadLayer:
    """Adds the marks to whatever a read is answered with, problems included, and answers HEAD like GET
    without a body.
    """

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD" and scope["path"] != _NEVER_ENDS
        inner = {**scope, "method": "GET"} if is_head else scope
        marked = scope["path"].startswith(READ_PATHS)

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start" and marked:
                headers = MutableHeaders(scope=message)
                for name, value in inner.get(_MARK) or marks(self._registry):
                    headers[name] = value
            elif message["type"] == "http.response.body" and is_head:
                message = {**message, "body": b""}
            await send(message)

        await self._app(inner, receive, send_marked)


DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Page:
    limit: int
    after: str | None

    def of(self, names: Iterable[str]) -> tuple[Sequence[str], str | None]:
        """The names of this page, sorted, and the cursor of the next one."""
        ordered = sorted(names)
        start = bisect_right(ordered, self.after) if self.after is not None else 0
        chosen = ordered[start : start + self.limit]
        is_last = start + self.limit >= len(ordered)
        return chosen, None if is_last else _cursor(chosen[-1])


def page_of(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="So many items at most.")] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")] = None,
) -> Page:
    return Page(limit, _after(cursor) if cursor else None)


PageOf = Annotated[Page, Depends(page_of)]


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")


def _after(cursor: str) -> str:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (UnicodeError, binascii.Error) as error:
        raise InvalidInputError("cursor", cursor, "what `next_cursor` of the page before said") from error


TopicName = Annotated[str, Path(description="A topic's name.", examples=["TopicA"])]
ClusterName = Annotated[str, Path(description="A cluster's name.", examples=["DefaultCluster"])]
BrokerName = Annotated[str, Path(description="The name that a broker group shares.", examples=["broker-a"])]
BrokerId = Annotated[int, Path(ge=0, le=2**63 - 1, description="The seat in the group; 0 is the master.", examples=[0])]
KvNamespace = Annotated[str, Path(description="A key-value namespace.", examples=["ORDER_TOPIC_CONFIG"])]
KvKey = Annotated[str, Path(description="A key.", examples=["TopicA"])]
OfCluster = Annotated[str | None, Query(description="Only what belongs to this cluster.", examples=["DefaultCluster"])]

# The last name of a path may hold slashes: RocketMQ's own rules for names are younger than some fleets.
TOPIC: Final = "/v1/topics/{topic:path}"
