"""The route lookup without detours: path in, cached bytes out. No validation, no encoding, no dependency
tree, no I/O.

Invariant: for every topic this layer and the path operation behind it (`routers/routes.py`) give the same
answer. Whatever has a query string (`min_version`) goes the longer way.
"""

from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import NotFoundError, RoutebookError
from routebook.http_api.dependencies import marks
from routebook.http_api.problems import response_to_error
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry

PREFIX: Final = "/v1/routes/"
_JSON: Final = (b"content-type", b"application/json")


class ShortWay:
    def __init__(self, app: ASGIApp, registry: Registry, metrics: Metrics) -> None:
        self._app = app
        self._registry = registry
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_plain_lookup(scope):
            await self._app(scope, receive, send)
            return
        began = perf_counter() if self._metrics.http_sample_due else 0.0
        said = [(name.encode(), value.encode()) for name, value in marks(self._registry)]
        try:
            body = find_counted(self._registry, self._metrics, scope["path"][len(PREFIX) :])
        except RoutebookError as error:
            response = response_to_error(error)
            response.raw_headers.extend(said)
            if scope["method"] == "HEAD":
                response.body = b""
            await response(scope, receive, send)
            return
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [_JSON, length, *said]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        if began:
            self._metrics.lookup_time("http", perf_counter() - began)


def find_counted(registry: Registry, metrics: Metrics, topic: str) -> bytes:
    try:
        body = registry.find_route(topic)
    except RoutebookError as error:
        metrics.lookup("http", "not_found" if isinstance(error, NotFoundError) else "not_ready")
        raise
    metrics.lookup("http", "found")
    return body


def _is_plain_lookup(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and not scope["query_string"]
        and scope["method"] in ("GET", "HEAD")
        and scope["path"].startswith(PREFIX)
        and len(scope["path"]) > len(PREFIX)
    )
