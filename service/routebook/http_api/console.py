"""Serves the console: its pages, their parts, the stream of events, and the assets. What pages show is in `console/`.

A page is HTML for people; a part is its main area alone, which the script of an open page reads again after a change.
"""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from routebook.console import views
from routebook.console.live import Snapshot
from routebook.console.rendering import ASSET_TYPES, ASSETS, HEADERS, asset, render_in_steps
from routebook.console.views import MAX_OFFSET, search_names
from routebook.errors import InvalidInputError, NotFoundError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.audit import note_of
from routebook.http_api.callers import LOCAL, SIGN_IN_COOKIE, forget_sign_in, identify
from routebook.http_api.dependencies import AppContext, ContextDep, context_of
from routebook.http_api.history import parse_position
from routebook.http_api.problems import Problem, kind_of
from routebook.model.identity import Identity, Role
from routebook.store.change_search import ChangeFilter
from routebook.store.history import KINDS

PAGE_ROWS: Final = 100
RECENT_ROWS: Final = 12
DAY_MS: Final = 86_400_000

# -- the frame of every page


@dataclass(frozen=True, slots=True)
class Visit:
    """The identity that reads a page, and whether it reads the whole page or only its main area."""

    request: Request
    context: AppContext
    identity: Identity | None
    has_wrong_cookie: bool
    is_part: bool

    @classmethod
    def of(cls, request: Request) -> "Visit":
        context = context_of(request)
        context.console.live.use()
        is_part = request.headers.get("x-routebook-part") == "main"
        try:
            identity = identify(request, context)
        except Problem as problem:
            return cls(request, context, None, problem.kind is problems.WRONG_TOKEN, is_part)
        except RoutebookError:
            return cls(request, context, None, has_wrong_cookie=False, is_part=is_part)
        return cls(request, context, identity, has_wrong_cookie=False, is_part=is_part)

    def may(self, role: Role) -> bool:
        return self.identity is not None and self.identity.role >= role

    def require(self, role: Role, what: str) -> None:
        """For pages with data that the API shows to administrators only."""
        if self.identity is None:
            raise Problem(problems.MISSING_TOKEN, f"{what} can be read with the role {role.label}.", advice="Sign in.")
        if self.identity.role < role:
            raise Problem(
                problems.FORBIDDEN,
                f"Identity {self.identity.name!r} has the role {self.identity.role.label}; {what.lower()} needs the "
                f"role {role.label}.",
                advice="Sign in with another token (`routebook token create --role`).",
            )

    async def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        registry = self.context.registry
        frame = {
            "active": template.removesuffix(".html"),
            "frame": "part.html" if self.is_part else "frame.html",
            "identity": self.identity,
            "is_local": self.identity is LOCAL,
            "has_cookie": SIGN_IN_COOKIE in self.request.cookies,
            "has_wrong_cookie": self.has_wrong_cookie,
            "roles": {role.label: self.may(role) for role in Role},
            "worker": registry.worker,
            "namespace": registry.namespace,
            "version": registry.replica.version,
            "position": self.context.console.live.position,
            "stale_s": registry.stale_seconds,
            "complete": registry.replica.complete,
            "now_ms": int(time.time() * 1000),
            "here": _here(self.request),
            "remoting_port": self.context.live_settings.current.remoting_port,
            "follow": None,
            "snapshot": None,
        }
        body = await self.context.console.rendering.run(render_in_steps(template, frame | values))
        response = Response(body, status, media_type="text/html", headers=HEADERS)
        if self.has_wrong_cookie:
            forget_sign_in(response)
        return response


def _here(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


class ConsoleRoute(APIRoute):
    """Answers errors with a page. Parts that several consoles ask for at the same time are rendered once."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_with_error_page(request: Request) -> Response:
            try:
                return await _share(request, handle)
            except (RoutebookError, Problem, RequestValidationError) as error:
                return await error_page(Visit.of(request), error)

        return handle_with_error_page


async def _share(request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> Response:
    """One identity's view of one page in one state of the table is rendered once a second at most."""
    if request.method != "GET" or request.headers.get("x-routebook-part") != "main":
        return await handle(request)
    visit = Visit.of(request)
    if visit.has_wrong_cookie:
        return await handle(request)
    page = (_here(request), visit.identity, SIGN_IN_COOKIE in request.cookies)
    view_number = visit.context.registry.replica.view_number
    return await visit.context.console.parts.get(page, view_number, lambda: handle(request))


async def error_page(visit: Visit, error: RoutebookError | Problem | RequestValidationError) -> Response:
    if isinstance(error, RequestValidationError):
        kind, detail, advice = problems.INVALID, "A value in the address of this page is not allowed.", ""
    elif isinstance(error, Problem):
        kind, detail, advice = error.kind, error.detail, error.advice
    else:
        kind, detail, advice = kind_of(error), error.message, error.advice
    note_of(visit.request.scope).reason = f"{kind.type}: {detail}"
    response = await visit.page("error.html", status=kind.status, title=kind.title, detail=detail, advice=advice)
    for name, value in kind.headers.items():
        # A browser would ask for a password for `WWW-Authenticate`.
        if name not in ("WWW-Authenticate", "Connection"):
            response.headers[name] = value
    return response


router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)
root = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=400)]
PageNumber = Annotated[int, Query(ge=1, le=1_000)]


@root.get("/")
async def show_console() -> Response:
    return RedirectResponse("/console/", 303)


@router.get("/assets/{digest}/{name}")
async def show_asset(digest: str, name: str) -> Response:
    del digest
    kind = ASSET_TYPES.get(f".{name.rpartition('.')[2]}")
    if kind is None or "/" in name or not (ASSETS / name).is_file():
        raise Problem(problems.NO_SUCH_PATH, "There is no such file.")
    headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return Response(asset(name)[0], media_type=kind, headers=headers)


@router.get("/events")
async def follow_events(
    request: Request,
    context: ContextDep,
    last: Annotated[str, Query(max_length=100)] = "",
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    peer = context.peer_of(request)
    context.watchers.check_room(peer)

    async def stream() -> AsyncIterator[bytes]:
        with context.watchers.watching(peer):
            async for part in context.console.live.stream(last_event_id or last):
                yield part

    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


async def _snapshot(context: AppContext) -> Snapshot | None:
    try:
        return await context.console.live.snapshot()
    except RoutebookError:
        return None


# -- overview


@router.get("/")
async def show_overview(request: Request, context: ContextDep) -> Response:
    visit, registry = Visit.of(request), context.registry
    view = registry.replica.view
    recent, fault, outages = None, "", []
    try:
        recent = await registry.search_changes(
            ChangeFilter(kinds=frozenset(KINDS)), newest_first=True, limit=RECENT_ROWS
        )
        outages = list((await context.console.outages.read())[0])
    except RoutebookError as error:
        fault = str(error)
    now_ms = int(time.time() * 1000)
    missing = [one for one in outages if one.back_ms is None and not one.is_planned and now_ms - one.gone_ms < DAY_MS]
    return await visit.page(
        "overview.html",
        snapshot=await _snapshot(context),
        follow={"all": True},
        rates=context.console.live.rates(),
        counts={
            "brokers": sum(len(group.addresses) for group in view.groups.values()),
            "groups": len(view.groups),
            "topics": len(view.topics),
            "clusters": len(view.clusters),
        },
        missing=missing,
        without_master=sum(1 for group in view.groups.values() if group.addresses and 0 not in group.addresses),
        recent=recent.entries if recent else [],
        fault=fault,
    )


# -- clusters and brokers


@router.get("/clusters")
async def show_clusters(request: Request, context: ContextDep) -> Response:
    registry = context.registry
    view = registry.view
    clusters = [
        {
            "name": name,
            "groups": len(brokers),
            "brokers": sum(len(view.groups[broker].addresses) for broker in brokers if broker in view.groups),
            "without_master": sum(
                1 for broker in brokers if broker in view.groups and 0 not in view.groups[broker].addresses
            ),
        }
        for name, brokers in sorted(view.clusters.items())
    ]
    return await Visit.of(request).page("clusters.html", clusters=clusters, follow={"kinds": _FLEET_KINDS})


_FLEET_KINDS: Final = ["broker-registered", "broker-changed", "broker-removed", "group-changed", "status"]


@router.get("/brokers")
async def show_brokers(
    request: Request, context: ContextDep, cluster: Text = "", q: Text = "", page: PageNumber = 1
) -> Response:
    registry = context.registry
    found = await search_names(registry.brokers(cluster or None), q, offset=(page - 1) * PAGE_ROWS, limit=PAGE_ROWS)
    rows = await views.group_rows(registry, found.names)
    return await Visit.of(request).page(
        "brokers.html",
        rows=rows,
        total=found.total,
        cluster=cluster,
        q=q,
        page_number=page,
        has_next=page * PAGE_ROWS < min(found.total, MAX_OFFSET),
        follow={"kinds": _FLEET_KINDS, "every_ms": 10_000},
    )


@router.get("/broker")
async def show_broker(
    request: Request, context: ContextDep, name: Text, q: Text = "", page: PageNumber = 1
) -> Response:
    """A group with its seats, topics, heartbeat gaps and history. A group that is away still has its history."""
    visit, registry = Visit.of(request), context.registry
    view = registry.view
    now_ms = int(time.time() * 1000)
    row = next(iter(await views.group_rows(registry, [name])), None)
    queues = view.queues_of(name)
    found = await search_names(queues, q, offset=(page - 1) * PAGE_ROWS, limit=PAGE_ROWS)
    topics = [(topic, queues[topic]) for topic in found.names if topic in queues]
    chart, recent, outages, fault = None, None, [], ""
    try:
        gaps = await registry.past.heartbeat_gaps_of(name, now_ms - views.MINUTES * 60_000)
        instances = [seat.instance for seat in row.seats if seat.instance] if row else []
        timeout_ms = min((instance.timeout_ms for instance in instances), default=0)
        chart = views.gap_chart(gaps, timeout_ms or context.live_settings.current.broker_timeout_ms, now_ms)
        recent = await registry.search_changes(ChangeFilter(broker=name), newest_first=True, limit=RECENT_ROWS)
        outages = [outage for outage in (await context.console.outages.read())[0] if outage.seat[1] == name]
    except RoutebookError as error:
        fault = str(error)
    if row is None and not outages and not (recent and recent.entries):
        registry.broker(name)
    return await visit.page(
        "broker.html",
        status=200 if row else 404,
        name=name,
        row=row,
        topics=topics,
        total=found.total,
        q=q,
        page_number=page,
        has_next=page * PAGE_ROWS < min(found.total, MAX_OFFSET),
        chart=chart,
        outages=outages[:20],
        recent=recent.entries if recent else [],
        fault=fault,
        follow={"brokers": [name], "every_ms": 10_000},
    )


@router.get("/outages")
async def show_outages(
    request: Request, context: ContextDep, hours: Annotated[int, Query(ge=1, le=168)] = 24, planned: bool = False
) -> Response:
    outages, reaches_back_ms = await context.console.outages.read()
    now_ms = int(time.time() * 1000)
    since_ms = now_ms - hours * 3_600_000
    shown = [
        outage for outage in outages if (outage.back_ms or now_ms) >= since_ms and (planned or not outage.is_planned)
    ]
    return await Visit.of(request).page(
        "outages.html",
        outages=shown[:500],
        hours=hours,
        planned=planned,
        reaches_back_ms=reaches_back_ms,
        is_short=reaches_back_ms > since_ms,
        follow={"kinds": ["broker-removed", "broker-registered"]},
    )


# -- topics


@router.get("/topics")
async def show_topics(request: Request, context: ContextDep, q: Text = "", page: PageNumber = 1) -> Response:
    registry = context.registry
    found = await search_names(registry.view.topics, q, offset=(page - 1) * PAGE_ROWS, limit=PAGE_ROWS)
    view = registry.view
    rows = [views.topic_row(name, view.brokers_of(name)) for name in found.names]
    return await Visit.of(request).page(
        "topics.html",
        rows=rows,
        total=found.total,
        q=q,
        page_number=page,
        has_next=page * PAGE_ROWS < min(found.total, MAX_OFFSET),
        follow={"kinds": ["broker-registered", "broker-changed", "broker-removed", "queues-changed"]},
    )


@router.get("/topic")
async def show_topic(request: Request, context: ContextDep, name: Text, at: Text = "") -> Response:
    visit, registry = Visit.of(request), context.registry
    if at:
        return await _show_past_topic(visit, name, at)
    picture = views.current_picture(registry, name)
    route, missing, recent, similar, fault, outages = "", None, None, [], "", []
    if picture is not None and registry.replica.route_bytes(name):
        route = registry.find_route(name).decode()
    else:
        _check_miss(visit, name)
    brokers = frozenset(row.broker for row in picture.rows) if picture else frozenset()
    try:
        outages = list((await context.console.outages.read())[0])
        wanted = views.RouteFilter(topic=name, brokers=brokers)
        recent = await registry.search_changes(wanted, newest_first=True, limit=2 * RECENT_ROWS)
        if picture is None:
            missing = await views.explain_missing(registry, name, outages)
            similar = list((await search_names(registry.view.topics, name[:12].lower(), limit=8)).names)
    except RoutebookError as error:
        fault = str(error)
    return await visit.page(
        "topic.html",
        status=200 if picture else 404,
        name=name,
        picture=picture,
        route=route,
        missing=missing,
        similar=similar,
        outages=[one for one in outages if one.seat[1] in brokers and one.back_ms is None],
        recent=recent.entries if recent else [],
        fault=fault,
        at=None,
        follow={"topics": [name], "brokers": sorted(brokers)},
    )


def _check_miss(visit: Visit, name: str) -> None:
    """Raises NotReadyError when this worker cannot be sure that there is no such topic."""
    try:
        visit.context.registry.find_topic(name)
    except NotFoundError:
        return


async def _show_past_topic(visit: Visit, name: str, at: str) -> Response:
    moment_ms = parse_moment("at", at)
    table = (await visit.context.registry.past.tables_at([moment_ms]))[0]
    picture = views.past_picture(table, name)
    return await visit.page(
        "topic_past.html", name=name, picture=picture, at=at, moment_ms=moment_ms, table=table, follow=None
    )


def parse_moment(name: str, text: str) -> int:
    """As in the API. Besides, a time without a zone is in UTC: browsers without the script send that form."""
    try:
        moment = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is None:
        text += "Z"
    position = parse_position(name, text)
    if position.ms is None and position.id is None:
        raise InvalidInputError(name, text, "a time such as 2026-01-31T08:00:00Z, or a duration such as 10m")
    return position.ms if position.ms is not None else position.id.ms if position.id else 0
