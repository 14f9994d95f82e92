"""The change history, and `GET /v1/watch`: route changes as server-sent events."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from routebook.errors import InvalidInputError
from routebook.http_api import problems
from routebook.http_api.callers import OperatorDep
from routebook.http_api.changes import (
    SearchRequest,
    checked_kinds,
    follow_changes,
    parse_position,
    read_page,
)
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, ContextDep, RegistryDep
from routebook.http_api.openapi import ADMIN, READ, STORE, problem_responses
from routebook.http_api.schemas import BaselineRequested, Changes
from routebook.http_api.watch_streams import Watch, WatchRequest, parse_event_id
from routebook.model.names import check_name
from routebook.store.change_search import ChangeFilter, Cursor

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


_FOLLOW_STREAM = {
    "description": "One page, or with `follow=true` a stream of server-sent events: `event: change` has one entry, its "
    "`id` the cursor after it.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
_POSITION: Final = (
    "a version, an id (`<ms>-<version>`), a time (ISO 8601 with its zone), or a duration before now such as `10m`"
)


async def _search_of(
    *,
    since: Annotated[
        str | None, Query(description=f"Only what came after: {_POSITION}. A version selects no refusals.")
    ] = None,
    until: Annotated[str | None, Query(description=f"Only what came until then: {_POSITION}.")] = None,
    from_: Annotated[
        str | None, Query(alias="from", description="Address of the peer, with or without its port.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        Query(description="A kind of change, or `refused`, or `failed`; may be repeated.", max_length=50),
    ] = None,
    broker: Annotated[str | None, Query(description="A broker name.")] = None,
    topic: Annotated[str | None, Query(description="A topic that the entry names.")] = None,
    cluster: Annotated[str | None, Query(description="A cluster.")] = None,
    actor: Annotated[str | None, Query(description="Who made the change.")] = None,
    cursor: Annotated[str | None, Query(max_length=100, description="`next_cursor` of the page before.")] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="`desc`: newest first.")] = "asc",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> SearchRequest:
    wanted = ChangeFilter(
        kinds=checked_kinds(kind or []),
        broker=broker or "",
        topic=topic or "",
        cluster=cluster or "",
        actor=actor or "",
        source=from_ or "",
    )
    return SearchRequest(
        wanted,
        since=parse_position("since", since) if since else None,
        until=parse_position("until", until) if until else None,
        cursor=Cursor.parse(cursor) if cursor else None,
        newest_first=order == "desc",
        limit=limit,
    )


@router.get(
    "/v1/changes",
    tags=["operation"],
    summary="Read the history",
    response_model=Changes,
    responses={200: _FOLLOW_STREAM, **problem_responses(*READ, *STORE, problems.INVALID, problems.BUSY)},
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def list_changes(
    request: Request,
    context: ContextDep,
    search: Annotated[SearchRequest, Depends(_search_of)],
    follow: Annotated[bool, Query(description="Continue with new entries, as server-sent events.")] = False,
    last_event_id: Annotated[str | None, Header(description="With `follow`: the `id` of the last event.")] = None,
) -> Changes | StreamingResponse:
    """What changed, when, who changed it, and which requests were refused; newest last.

    One request reads a limited part of the history, so a page with filters may be empty although more follows: continue
    with `cursor=next_cursor` while `has_more` is true.
    """
    if not follow:
        return await read_page(context.registry, search)
    if search.newest_first:
        raise InvalidInputError("order", "desc", "asc, together with follow")
    peer = context.peer_of(request)
    context.watchers.check_room(peer)
    if last_event_id:
        search = replace(search, cursor=Cursor.parse(last_event_id))
    stream = follow_changes(context.registry, context.watchers, peer, search)
    return StreamingResponse(stream, media_type="text/event-stream", headers=_WATCH_HEADERS)


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
