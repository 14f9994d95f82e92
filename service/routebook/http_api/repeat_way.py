"""The registration that changes nothing, without detours: nearly all traffic of a live fleet is the same body again.

A body that this worker has understood once is known again by its digest, so a repeat is neither parsed nor
checked anew (10 000 topics take a tenth of a second of the event loop). Whether it *is* without effect says
the store alone: the registry asks it with that digest, and if not, the registration runs as if it had just been read.

Invariant: this layer and the path operation behind it (`routers/members.py`) give the same answer.
"""

import hashlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.http_api.callers import caller_of
from routebook.http_api.known_bodies import KnownBodies
from routebook.http_api.measuring import PATTERN
from routebook.http_api.problems import response_to_error
from routebook.http_api.schemas.registration import Registered
from routebook.model.broker import Registration
from routebook.registry.registry import Registry

SEAT_PATTERN: Final = "/v1/clusters/{cluster}/brokers/{name}/{id}"
DIGEST: Final = "routebook.body_digest"


class RepeatWay:
    """Stands behind `BodyLayer`, which gives the whole body in one message."""

    def __init__(self, app: ASGIApp, registry: Registry, known: KnownBodies) -> None:
        self._app = app
        self._registry = registry
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_registration(scope):
            await self._app(scope, receive, send)
            return
        message = await receive()
        digest = _digest_of(scope, message.get("body", b""))
        known = self._known.find(digest)
        if known is None:
            scope[DIGEST] = digest
            await self._app(scope, _again(message, receive), send)
            return
        scope[PATTERN] = SEAT_PATTERN
        response = await self._repeat(known, Request(scope), digest)
        await response(scope, receive, send)

    async def _repeat(self, known: Registration, request: Request, digest: str) -> Response:
        try:
            result = await self._registry.register(known, caller_of(request, self._registry), body_digest=digest)
        except RoutebookError as error:
            return response_to_error(error)
        return Response(Registered.of(result).model_dump_json(), media_type="application/json")


def _is_registration(scope: Scope) -> bool:
    """A request that names an origin takes the longer way, which looks at it."""
    return (
        scope["type"] == "http"
        and scope["method"] == "PUT"
        and scope["path"].startswith("/v1/clusters/")
        and not any(name == b"origin" for name, _ in scope["headers"])
    )


def _digest_of(scope: Scope, body: bytes) -> str:
    """The release belongs to it: another one may read the same body in another way."""
    digest = hashlib.blake2b(__version__.encode(), digest_size=16)
    for part in (scope["path"].encode("utf-8", "surrogatepass"), scope["query_string"], body):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def _again(message: Message, receive: Receive) -> Receive:
    given = False

    async def receive_once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return message

    return receive_once
