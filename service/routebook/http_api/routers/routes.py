"""`GET /v1/routes/{topic}`: the longer way of the lookup. Without a query string `short_way.py` answers
before it.
"""

from fastapi import APIRouter, Response

from routebook.http_api import problems
from routebook.http_api.dependencies import PartsOf, Seen, TopicName
from routebook.http_api.openapi import READ, answers_with, not_found
from routebook.http_api.schemas.table import ROUTE_EXAMPLE
from routebook.http_api.short_way import find_counted

router = APIRouter(tags=["lookup"])

_ROUTE = {
    "description": "Standard JSON of RocketMQ's TopicRouteData.",
    "content": {"application/json": {"schema": {"type": "object"}, "example": ROUTE_EXAMPLE}},
}


@router.get(
    "/v1/routes/{topic:path}",
    summary="Find the route of a topic",
    response_class=Response,
    responses={200: _ROUTE, **answers_with(*READ, not_found("topic"), problems.NOT_READY)},
    dependencies=[Seen],
)
async def find_route(topic: TopicName, parts: PartsOf) -> Response:
    """From memory, never from the store. `topic-not-found` is said only when the table is complete and
    current.
    """
    body = find_counted(parts.registry, parts.metrics, topic)
    return Response(body, media_type="application/json")
