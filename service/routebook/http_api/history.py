"""The change history: what a request may ask for, its pages, the stream of `follow=true`; and `GET /v1/watch`."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from routebook.errors import InvalidInputError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.callers import OperatorDep
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, ContextDep, RegistryDep
from routebook.http_api.openapi import ADMIN, READ, STORE, problem_responses
from routebook.http_api.schemas import BaselineRequested, ChangeEntry, Changes, MissingEntries
from routebook.http_api.watch_streams import KEEP_ALIVE, Watch, Watchers, WatchRequest, parse_event_id
from routebook.listeners.peers import Peer
from routebook.model.names import check_name
from routebook.registry.registry import Registry
from routebook.store.change_search import (
    REFUSAL_KINDS,
    ChangeFilter,
    ChangesPage,
    Cursor,
    EntryId,
    FoundEntry,
    Position,
)
from routebook.store.history import BASELINE_KINDS, KINDS

# -- searching the history

FOLLOW_PAUSE_S: Final = 1.0
KEEP_ALIVE_S: Final = 10.0
_ALL_KINDS: Final = frozenset({*KINDS, *BASELINE_KINDS, *REFUSAL_KINDS})
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>ms|s|m|h|d)")
_ID: Final = re.compile(r"(?P<ms>[0-9]{1,15})-(?P<version>[0-9]{1,18})")
_ALLOWED: Final = "a version, an id (<ms>-<version>), a time such as 2026-01-31T08:00:00Z, or a duration such as 10m"


@dataclass(frozen=True, slots=True)
class SearchRequest:
    filter: ChangeFilter
    since: Position | None
    until: Position | None
    cursor: Cursor | None
    newest_first: bool
    limit: int


def checked_kinds(kinds: Sequence[str]) -> frozenset[str]:
    for kind in kinds:
        if kind not in _ALL_KINDS:
            raise InvalidInputError("kind", kind, ", ".join(sorted(_ALL_KINDS)))
    return frozenset(kinds)


def parse_position(name: str, text: str, *, now: float | None = None) -> Position:
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        return Position(version=min(int(text), 2**63 - 2))
    if found := _ID.fullmatch(text):
        return Position(id=EntryId(int(found["ms"]), int(found["version"])))
    if found := _DURATION.fullmatch(text):
        now_ms = int((time.time() if now is None else now) * 1000)
        return Position(ms=max(now_ms - int(found["number"]) * _UNITS_MS[found["unit"]], 0))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return Position(ms=max(int(moment.timestamp() * 1000), 0))
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidInputError(name, text, _ALLOWED)


async def read_page(registry: Registry, request: SearchRequest) -> Changes:
    page = await _search(registry, request)
    return Changes(
        changes=[_entry(found) for found in page.entries],
        next_cursor=str(page.cursor),
        has_more=page.has_more,
        next_since=_next_since(page, registry, request),
        missing=await _missing(registry, request),
    )


async def _search(registry: Registry, request: SearchRequest) -> ChangesPage:
    return await registry.search_changes(
        request.filter,
        since=request.since,
        until=request.until,
        cursor=request.cursor,
        newest_first=request.newest_first,
        limit=request.limit,
    )


def _entry(found: FoundEntry) -> ChangeEntry:
    version = found.id.number if found.is_change else None
    return ChangeEntry(**{**found.fields, "entry": str(found.id), "ms": found.id.ms, "version": version})


def _next_since(page: ChangesPage, registry: Registry, request: SearchRequest) -> int:
    """A page that begins at a time and read nothing is at the end of the history."""
    newest = registry.replica.version
    if request.since is not None and request.since.version is not None:
        newest = max(newest, request.since.version)
    return min(page.cursor.change.number, newest)


async def _missing(registry: Registry, request: SearchRequest) -> MissingEntries | None:
    """Versions after `since` that were trimmed, reported with the first page."""
    since = request.since.version if request.since is not None else None
    if not since or request.cursor is not None:
        return None
    first = await registry.first_version()
    if first is None or first <= since + 1:
        return None
    return MissingEntries(from_version=since + 1, to_version=first - 1)


async def follow_changes(
    registry: Registry, watchers: Watchers, peer: Peer, request: SearchRequest
) -> AsyncIterator[bytes]:
    """Without a beginning, only new entries. Ends when the worker stops or the store fails; the client can resume."""
    with watchers.watching(peer):
        yield b": the stream begins\n\n"
        try:
            if request.since is None and request.cursor is None:
                request = replace(request, cursor=await registry.newest_ids())
            async for part in _events(registry, watchers, request):
                yield part
        except RoutebookError:
            return


async def _events(registry: Registry, watchers: Watchers, request: SearchRequest) -> AsyncIterator[bytes]:
    last_sent = time.monotonic()
    while not watchers.stopping.is_set():
        page = await _search(registry, request)
        for at, found in enumerate(page.entries):
            # Only the last entry of a page has the cursor, which counts both streams; resuming may repeat some.
            lines = ["event: change", f"data: {_entry(found).model_dump_json()}"]
            if at == len(page.entries) - 1:
                lines.append(f"id: {page.cursor}")
            yield ("\n".join(lines) + "\n\n").encode()
            last_sent = time.monotonic()
        request = replace(request, cursor=page.cursor)
        if page.has_more:
            continue
        if time.monotonic() - last_sent >= KEEP_ALIVE_S:
            yield KEEP_ALIVE
            last_sent = time.monotonic()
        try:
            await asyncio.wait_for(watchers.stopping.wait(), FOLLOW_PAUSE_S)
        except TimeoutError:
            continue


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
