"""Every answer of a read says how new it is; `min_version` lets a reader wait for what another worker has
seen.
"""

import math
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.http_api.parts import RegistryOf
from routebook.registry.registry import Registry

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
