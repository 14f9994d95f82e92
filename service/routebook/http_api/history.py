"""The change history, and `GET /v1/watch`: route changes as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from routebook.http_api import problems
from routebook.http_api.callers import OperatorDep
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, ContextDep, RegistryDep
from routebook.http_api.openapi import ADMIN, READ, STORE, problem_responses
from routebook.http_api.schemas import BaselineRequested, ChangeEntry, Changes, MissingEntries
from routebook.http_api.watch_streams import Watch, WatchRequest, parse_event_id
from routebook.model.names import check_name

router = APIRouter()

_WATCH_EXAMPLE = (
    "event: route\nid: 1763475600000-42\n"
    'data: {"topic":"TopicA","version":42,"route":{"brokerDatas":[…],"queueDatas":[…]}}\n\n'
)
_WATCH_STREAM = {
    "description": "`event: route` has the current route, or null when the topic no longer exists. After "
    "`event: reset` the client's data may be wrong; read it again.",
    "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _WATCH_EXAMPLE}},
}
# Without the second header, nginx would keep events back until its buffer is full.
_WATCH_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get(
    "/v1/watch",
    tags=["lookup"],
    summary="Watch routes",
    response_class=StreamingResponse,
    responses={200: _WATCH_STREAM, **problem_responses(*READ, problems.BUSY)},
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def watch_routes(
    request: Request,
    context: ContextDep,
    topic: Annotated[
        str | None, Query(description="Watch only this topic; the default is all topics.", examples=["TopicA"])
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            description="The `id` of the last event received. The stream continues after it, or begins with `reset`."
        ),
    ] = None,
) -> StreamingResponse:
    """The watch of one topic begins with its current route, if it has one. `EventSource` in browsers reconnects and
    resumes without further code.

    A change that affects several topics is sent as several events; the last of them has the id. A client that reads too
    slowly is disconnected and can resume.
    """
    peer = context.peer_of(request)
    context.watchers.check_room(peer)
    wanted = WatchRequest(
        topic=check_name("topic", topic) if topic is not None else None,
        resumes=last_event_id is not None,
        last_seen=parse_event_id(last_event_id) if last_event_id is not None else None,
    )
    stream: AsyncIterator[bytes] = Watch(context.registry, context.watchers, peer, wanted).stream()
    return StreamingResponse(stream, media_type="text/event-stream", headers=_WATCH_HEADERS)


@router.get(
    "/v1/changes",
    tags=["operation"],
    summary="Read the history",
    responses=problem_responses(*READ, *STORE),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_changes(
    registry: RegistryDep,
    since: Annotated[
        int, Query(ge=0, le=2**63 - 1, description="Return versions after this one; 0 = all that are kept.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> Changes:
    """What changed, when, and who changed it; newest last. Continue with `since=next_since` until a page is empty."""
    found = await registry.changes(since, limit)
    first = found[0].version if found else since + 1
    return Changes(
        changes=[
            ChangeEntry(**{**change.fields, "entry": change.id, "ms": change.ms, "version": change.version})
            for change in found
        ],
        next_since=found[-1].version if found else since,
        missing=MissingEntries(from_version=since + 1, to_version=first - 1) if since and first > since + 1 else None,
    )


@router.post(
    "/v1/changes/baseline",
    tags=["operation"],
    summary="Write the whole table into the history",
    responses=problem_responses(*ADMIN, *STORE),
)
async def request_baseline(registry: RegistryDep, caller: OperatorDep) -> BaselineRequested:
    """The leader writes it within some seconds, in parts, from `baseline-begin` to `baseline-end`. Readers of the
    history can begin there. It does not change any route.
    """
    del caller
    return BaselineRequested(wanted_since_ms=await registry.request_baseline())
