"""`GET /v1/watch`: route changes as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from routebook.http_api import problems
from routebook.http_api.dependencies import PartsOf, Seen
from routebook.http_api.openapi import READ, answers_with
from routebook.http_api.watch_streams import Wanted, Watch, parse_event_id
from routebook.model.names import check_name

router = APIRouter(tags=["lookup"])

_EXAMPLE = (
    "event: route\nid: 1763475600000-42\n"
    'data: {"topic":"TopicA","version":42,"route":{"brokerDatas":[…],"queueDatas":[…]}}\n\n'
)
_STREAM = {
    "description": "`event: route` with the route as it is now, null when the topic has gone; "
    "`event: reset`: what you know may be wrong, ask anew.",
    "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
}
# nginx would hold events back until its buffer is full.
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get(
    "/v1/watch",
    summary="Watch routes",
    response_class=StreamingResponse,
    responses={200: _STREAM, **answers_with(*READ, problems.BUSY)},
    dependencies=[Seen],
)
async def watch_routes(
    parts: PartsOf,
    topic: Annotated[
        str | None, Query(description="Only this topic; without it all of them.", examples=["TopicA"])
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(description="The `id` of the last event you have: goes on without a gap, or says `reset` first."),
    ] = None,
) -> StreamingResponse:
    """A watch of one topic begins with its route, if there is one. Browsers' `EventSource` reconnects and
    resumes by itself.

    Several topics that one change touched are several events with the same id. Slow readers are cut off,
    and resume.
    """
    parts.watchers.check_room()
    wanted = Wanted(
        topic=check_name("topic", topic) if topic is not None else None,
        resumes=last_event_id is not None,
        last_seen=parse_event_id(last_event_id) if last_event_id is not None else None,
    )
    stream: AsyncIterator[bytes] = Watch(parts.registry, parts.watchers, wanted).stream()
    return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)
