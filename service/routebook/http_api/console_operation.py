"""The console's pages about the history and the service: changes, differences, key-values, settings, connections,
limits and reports.
"""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from routebook.console.rendering import HEADERS, render
from routebook.errors import InvalidInputError, NotFoundError, PastUnknownError, RoutebookError
from routebook.http_api.console import ConsoleRoute, PageNumber, Text, Visit, parse_moment
from routebook.http_api.dependencies import AppContext, ContextDep
from routebook.http_api.history import checked_kinds, parse_position
from routebook.http_api.reports import ReportFile, ReportFolder
from routebook.model.identity import Role
from routebook.registry.past_tables import compare_tables
from routebook.settings import catalogue
from routebook.store.change_search import (
    REFUSAL_KINDS,
    ChangeFilter,
    ChangesPage,
    Cursor,
    EntryId,
    FoundEntry,
    Position,
)
from routebook.store.history import KINDS

TIMELINE_ROWS: Final = 60
MAX_NEW_ROWS: Final = 200
MAX_DIFFERENCES: Final = 500
MAX_PEERS: Final = 50
MAX_KEYS: Final = 500
HOUR_MS: Final = 3_600_000

router = APIRouter(prefix="/console", include_in_schema=False, route_class=ConsoleRoute)

# -- changes


@router.get("/changes")
async def show_changes(
    request: Request,
    context: ContextDep,
    *,
    since: Text = "",
    until: Text = "",
    kind: Annotated[list[str] | None, Query(max_length=50)] = None,
    broker: Text = "",
    topic: Text = "",
    cluster: Text = "",
    actor: Text = "",
    source: Annotated[str, Query(alias="from", max_length=400)] = "",
    cursor: Annotated[str, Query(max_length=100)] = "",
    after: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Newest first. With `after`, only the entries that are newer than this cursor, for a page that is open."""
    kinds = [one for one in kind or [] if one]
    wanted = ChangeFilter(
        kinds=checked_kinds(kinds), broker=broker, topic=topic, cluster=cluster, actor=actor, source=source
    )
    registry = context.registry
    if after:
        page = await registry.search_changes(wanted, cursor=Cursor.parse(after), limit=MAX_NEW_ROWS)
        return _new_rows(page)
    newest = await registry.newest_ids()
    page = await registry.search_changes(
        wanted,
        since=_position("since", since),
        until=_position("until", until),
        cursor=Cursor.parse(cursor) if cursor else None,
        newest_first=True,
        limit=TIMELINE_ROWS,
    )
    query = {
        "since": since,
        "until": until,
        "kind": kinds,
        "broker": broker,
        "topic": topic,
        "cluster": cluster,
        "actor": actor,
        "from_": source,
    }
    return await Visit.of(request).page(
        "changes.html",
        entries=page.entries,
        next_cursor=str(page.cursor) if page.has_more else "",
        query=query,
        kinds=[*KINDS, *sorted(REFUSAL_KINDS)],
        newest=str(newest),
        is_live=not (cursor or until),
        began_ms=await registry.past.history_began_ms(),
        follow=None,
    )


def _position(name: str, text: str) -> Position | None:
    if not text:
        return None
    if text.isdecimal():
        return parse_position(name, text)
    return Position(ms=parse_moment(name, text))


def _new_rows(page: ChangesPage) -> Response:
    body = render("changes_rows.html", {"entries": list(reversed(page.entries))})
    headers = {**HEADERS, "X-Routebook-Cursor": str(page.cursor), "X-Routebook-More": str(page.has_more).lower()}
    return Response(body, media_type="text/html", headers=headers)


@router.get("/change")
async def show_change(request: Request, context: ContextDep, id_: Annotated[str, Query(alias="id")]) -> Response:
    """One entry with all its fields: the permanent link of a change or a refusal."""
    position = parse_position("id", id_)
    if position.id is None:
        raise InvalidInputError("id", id_, "the id of an entry, such as 1763475600000-42")
    entry = await _find_entry(context, position.id)
    if entry is None:
        raise NotFoundError("change", id_, advice="The history no longer has it, or it belongs to another history.")
    return await Visit.of(request).page("change.html", entry=entry, fields=dict(entry.fields))


async def _find_entry(context: AppContext, wanted: EntryId) -> FoundEntry | None:
    page = await context.registry.search_changes(
        ChangeFilter(), since=Position(ms=wanted.ms), until=Position(ms=wanted.ms), limit=1_000
    )
    return next((entry for entry in page.entries if entry.id == wanted), None)


# -- the difference between two instants


@router.get("/difference")
async def show_difference(
    request: Request, context: ContextDep, from_: Annotated[str, Query(alias="from")] = "", to: Text = ""
) -> Response:
    visit, now_ms = Visit.of(request), int(time.time() * 1000)
    if not from_:
        return await _ask_for_instants(visit)
    moments = [parse_moment("from", from_), parse_moment("to", to) if to else now_ms]
    if moments[0] > moments[1]:
        raise InvalidInputError("from", from_, "a time before `to`")
    try:
        before, after = await context.registry.past.tables_at(moments)
    except PastUnknownError as error:
        return await _ask_for_instants(visit, str(error))
    difference = await asyncio.to_thread(compare_tables, before, after)
    others = await context.registry.search_changes(
        ChangeFilter(kinds=_NOT_IN_THE_TABLE),
        since=Position(ms=moments[0] + 1),
        until=Position(ms=moments[1]),
        limit=100,
    )
    return await visit.page(
        "difference.html",
        difference=difference,
        before=before,
        after=after,
        moments=moments,
        others=others.entries,
        limit=MAX_DIFFERENCES,
        began_ms=None,
        fault="",
        to=to,
    )


async def _ask_for_instants(visit: Visit, fault: str = "") -> Response:
    began_ms = await visit.context.registry.past.history_began_ms()
    return await visit.page(
        "difference.html", status=404 if fault else 200, difference=None, began_ms=began_ms, fault=fault, to=""
    )


_NOT_IN_THE_TABLE: Final = frozenset(
    {"kv-put", "kv-deleted", "settings-changed", "identity-changed", "expiry-held", "expiry-released", "expiry-paused"}
)

# -- key-values and settings


@router.get("/key-values")
async def show_key_values(request: Request, context: ContextDep, namespace: Text = "", q: Text = "") -> Response:
    visit = Visit.of(request)
    visit.require(Role.OPERATOR, "Key-values")
    tables = context.registry.view.kv
    if namespace and namespace not in tables:
        context.registry.kv(namespace)
    chosen = namespace or (min(tables) if tables else "")
    table = tables.get(chosen, {})
    keys = [key for key in sorted(table) if q in key]
    return await visit.page(
        "key_values.html",
        namespaces=sorted(tables),
        chosen=chosen,
        rows=[(key, table[key]) for key in keys[:MAX_KEYS]],
        total=len(keys),
        q=q,
        follow={"kinds": ["kv-put", "kv-deleted"]},
    )


@router.get("/settings")
async def show_settings(request: Request, context: ContextDep, q: Text = "") -> Response:
    visit = Visit.of(request)
    visit.require(Role.ADMIN, "Settings")
    known = catalogue.all_settings()
    rows = [
        (key, value, origin, known[key].about.at_run_time, known[key].allowed)
        for key, value, origin in context.live_settings.describe()
        if q in key
    ]
    changed: dict[str, FoundEntry] = {}
    fault = ""
    try:
        page = await context.registry.search_changes(
            ChangeFilter(kinds=frozenset({"settings-changed"})), newest_first=True, limit=200
        )
        for entry in page.entries:
            changed.setdefault(str(entry.fields["key"]), entry)
    except RoutebookError as error:
        fault = str(error)
    return await visit.page(
        "settings.html", rows=rows, changed=changed, q=q, fault=fault, follow={"kinds": ["settings-changed"]}
    )


# -- connections, limits


@router.get("/connections")
async def show_connections(request: Request, context: ContextDep) -> Response:
    """Of this worker. Addresses of peers are shown to operators only."""
    visit = Visit.of(request)
    peers = context.peers.busiest(MAX_PEERS) if visit.may(Role.OPERATOR) else []
    activity = context.metrics.activity()
    return await visit.page(
        "connections.html",
        activity=activity,
        rates=context.console.live.rates(),
        sessions=sorted(context.registry.sessions.carried())[:MAX_KEYS],
        number_of_sessions=len(context.registry.sessions),
        peers=peers,
        number_of_peers=len(context.peers),
        follow={"every_ms": 5_000},
    )


@router.get("/limits")
async def show_limits(request: Request, context: ContextDep) -> Response:
    settings, registry = context.live_settings.current, context.registry
    snapshot = await context.console.live.snapshot()
    state = snapshot.status.history_state
    view = registry.replica.view
    activity = context.metrics.activity()
    used: dict[str, float] = {
        "max_connections": max(activity.remoting_connections, activity.http_connections),
        "max_watches": context.watchers.open,
        "max_clusters": len(view.clusters),
        "max_groups": len(view.groups),
        "max_brokers": sum(len(group.addresses) for group in view.groups.values()),
        "max_seats_per_group": max((len(group.addresses) for group in view.groups.values()), default=0),
        "max_topics_per_broker": max((len(view.queues_of(name)) for name in view.groups), default=0),
        "max_key_values": sum(map(len, view.kv.values())),
    }
    if state is not None:
        used |= {"history_hard_limit": state.entries, "history_max_bytes": state.kept_bytes}
    rows = [
        (name, getattr(settings, name), used.get(name), one.about.why)
        for name, one in catalogue.all_settings().items()
        if name.startswith(("max_", "history_", "pulse_max")) and isinstance(getattr(settings, name), int)
    ]
    refusals = await registry.search_changes(ChangeFilter(kinds=REFUSAL_KINDS), newest_first=True, limit=30)
    return await Visit.of(request).page(
        "limits.html",
        snapshot=snapshot,
        rows=rows,
        refusals=refusals.entries,
        bound=snapshot.status.history_bound,
        state=state,
        follow={"every_ms": 10_000},
    )


# -- reports


@router.get("/reports")
async def show_reports(request: Request, context: ContextDep, page: PageNumber = 1) -> Response:
    visit = Visit.of(request)
    folder = context.live_settings.current.reports_dir
    reports: list[ReportFile] = []
    fault = ""
    if folder:
        try:
            reports = await asyncio.to_thread(ReportFolder(Path(folder)).newest_first)
        except OSError:
            fault = "The folder with reports cannot be read."
    return await visit.page(
        "reports.html", folder=str(folder or ""), reports=reports[(page - 1) * 50 : page * 50], fault=fault
    )
