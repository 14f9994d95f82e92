"""The registration that changes nothing, without detours: nearly all traffic of a live fleet is the same body again.

What was sent is digested before anything of it is parsed (10 000 topics take a tenth of a second of the event
loop), and the registry asks the store whether that is what this seat registered last. If not, it goes the longer way.

Invariant: this layer and the path operation behind it (`routers/members.py`) give the same answer.
"""

import hashlib
import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.http_api.body_layer import hand_on
from routebook.http_api.callers import caller_of
from routebook.http_api.measuring import PATTERN, REFUSAL
from routebook.http_api.problems import response_to_error
from routebook.http_api.schemas.registration import Registered
from routebook.observability.metrics import reason_of
from routebook.registry.registry import Registry

SEAT_PATTERN: Final = "/v1/clusters/{cluster}/brokers/{name}/{id}"
_SEAT: Final = re.compile(r"/v1/clusters/(?P<cluster>[^/]+)/brokers/(?P<broker>[^/]+)/(?P<id>[0-9]{1,19})")
DIGEST: Final = "routebook.body_digest"


class RepeatWay:
    """Stands behind `BodyLayer`, which gives the whole body in one message."""

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seat = _seat_of(scope)
        if seat is None:
            await self._app(scope, receive, send)
            return
        message = await receive()
        scope[DIGEST] = _digest_of(scope, message.get("body", b""))
        response = await self._repeat(*seat, Request(scope))
        if response is None:
            await self._app(scope, hand_on(message, receive), send)
            return
        scope[PATTERN] = SEAT_PATTERN
        await response(scope, receive, send)

    async def _repeat(self, cluster: str, broker: str, broker_id: int, request: Request) -> Response | None:
        caller = caller_of(request, self._registry)
        try:
            result = await self._registry.touch(cluster, broker, broker_id, request.scope[DIGEST], caller)
        except RoutebookError as error:
            request.scope[REFUSAL] = reason_of(error)
            return response_to_error(error)
        if result is None:
            return None
        return Response(Registered.of(result).model_dump_json(), media_type="application/json")


def _seat_of(scope: Scope) -> tuple[str, str, int] | None:
    """A request that names an origin takes the longer way, which looks at it."""
    if scope["type"] != "http" or scope["method"] != "PUT":
        return None
    found = _SEAT.fullmatch(scope["path"])
    if found is None or any(name == b"origin" for name, _ in scope["headers"]):
        return None
    return found["cluster"], found["broker"], int(found["id"])


def _digest_of(scope: Scope, body: bytes) -> str:
    """The release belongs to it: another one may read the same body in another way."""
    digest = hashlib.blake2b(__version__.encode(), digest_size=16)
    for part in (scope["path"].encode("utf-8", "surrogatepass"), scope["query_string"], body):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()
