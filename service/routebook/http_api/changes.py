"""`GET /v1/changes`: what a request may ask for, one page of the answer, and the stream of `follow=true`."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from routebook.errors import InvalidInputError, RoutebookError
from routebook.http_api.schemas import ChangeEntry, Changes, MissingEntries
from routebook.http_api.watch_streams import KEEP_ALIVE, Watchers
from routebook.listeners.peers import Peer
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
