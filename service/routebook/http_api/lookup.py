"""GET /v1/routes/{topic}: the route lookup.

`LookupEndpoint` answers it in front of FastAPI, whose routing, validation and dependencies cost several times as much
as the lookup. A request with a query string (`min_version`) passes through FastAPI to the path operation `find_route`.
Both call `find_and_count`; a test compares their responses.
"""

from time import perf_counter
from typing import Final

from fastapi import APIRouter, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import NotFoundError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, ContextDep, TopicName, freshness_headers
from routebook.http_api.openapi import READ, not_found, problem_responses
from routebook.http_api.problems import error_response
from routebook.http_api.schemas import ROUTE_EXAMPLE
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry

PREFIX: Final = "/v1/routes/"
_JSON: Final = (b"content-type", b"application/json")

_ROUTE = {
    "description": "RocketMQ's TopicRouteData as standard JSON.",
    "content": {"application/json": {"schema": {"type": "object"}, "example": ROUTE_EXAMPLE}},
}

router = APIRouter(tags=["lookup"])


@router.get(
    PREFIX + "{topic:path}",
    summary="Find the route of a topic",
    response_class=Response,
    responses={200: _ROUTE, **problem_responses(*READ, not_found("topic"), problems.NOT_READY)},
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def find_route(topic: TopicName, context: ContextDep) -> Response:
    """Answers from the worker's memory, without the store. The response is `topic-not-found` only when the table is
    complete and current.
    """
    body = find_and_count(context.registry, context.metrics, topic)
    return Response(body, media_type="application/json")


class LookupEndpoint:
    def __init__(self, app: ASGIApp, registry: Registry, metrics: Metrics) -> None:
        self._app = app
        self._registry = registry
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_lookup_without_query(scope):
            await self._app(scope, receive, send)
            return
        start = perf_counter() if self._metrics.http_sample_due else 0.0
        freshness = [(name.encode(), value.encode()) for name, value in freshness_headers(self._registry)]
        try:
            body = find_and_count(self._registry, self._metrics, scope["path"][len(PREFIX) :])
        except RoutebookError as error:
            response = error_response(error)
            response.raw_headers.extend(freshness)
            if scope["method"] == "HEAD":
                response.body = b""
            await response(scope, receive, send)
            return
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [_JSON, length, *freshness]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        if start:
            self._metrics.lookup_time("http", perf_counter() - start)


def find_and_count(registry: Registry, metrics: Metrics, topic: str) -> bytes:
    try:
        body = registry.find_route(topic)
    except RoutebookError as error:
        metrics.lookup("http", "not_found" if isinstance(error, NotFoundError) else "not_ready")
        raise
    metrics.lookup("http", "found")
    return body


def _is_lookup_without_query(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and not scope["query_string"]
        and scope["method"] in ("GET", "HEAD")
        and scope["path"].startswith(PREFIX)
        and len(scope["path"]) > len(PREFIX)
    )
