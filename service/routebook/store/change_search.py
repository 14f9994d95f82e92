"""Searching the history and the refusals: one page of the entries that match a filter, in the order of time.

Invariants:
- A page costs a limited amount of reading, whatever the filter: it may be empty although more follows. Its cursor says
  where the next page begins, in both streams, so that pages neither repeat nor omit an entry.
- Entries are parsed in short steps that let lookups through.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from routebook.errors import InvalidInputError
from routebook.observability.audit import address_of
from routebook.store.history import find_id, first_change, parse_change, parse_refusal, split_id
from routebook.store.namespace import Namespace

REFUSAL_KINDS: Final = frozenset({"refused", "failed"})
MAX_SCANNED: Final = 5_000
"""Entries that one page reads at most."""
MAX_SCANNED_BYTES: Final = 8 << 20
MAX_PAGE_BYTES: Final = 1 << 20
"""A page ends after that many bytes of entries; an entry has at most 256 KiB."""
FIRST_CHUNK: Final = 20
MAX_CHUNK: Final = 200
CHUNK_BYTES: Final = 1 << 20
STEP_BYTES: Final = 128 << 10
"""Bytes to parse before other work gets a turn."""

_CURSOR: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,19})~([0-9]{1,16})-([0-9]{1,19})")


class EntryId(NamedTuple):
    ms: int
    number: int
    """The version in the history; a number within the millisecond in the refusals."""

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"


_ZERO: Final = EntryId(0, 0)
_MAX_ID: Final = EntryId(2**53, 2**63 - 1)


class Cursor(NamedTuple):
    """The last entry of each stream that earlier pages have read."""

    change: EntryId
    refusal: EntryId

    def __str__(self) -> str:
        return f"{self.change}~{self.refusal}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        found = _CURSOR.fullmatch(text)
        if not found:
            raise InvalidInputError("cursor", text, "the `next_cursor` of the previous page")
        numbers = [min(int(one), _MAX_ID.number) for one in found.groups()]
        return cls(EntryId(numbers[0], numbers[1]), EntryId(numbers[2], numbers[3]))


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """An empty field allows everything."""

    kinds: frozenset[str] = frozenset()
    broker: str = ""
    topic: str = ""
    cluster: str = ""
    actor: str = ""
    source: str = ""
    """An address with or without its port."""

    def wants_changes(self) -> bool:
        return not self.kinds or bool(self.kinds - REFUSAL_KINDS)

    def wants_refusals(self) -> bool:
        return not self.kinds or bool(self.kinds & REFUSAL_KINDS)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        if self.kinds and fields["kind"] not in self.kinds:
            return False
        if self.actor and fields.get("actor") != self.actor:
            return False
        source = fields.get("source", "")
        if self.source and self.source not in (source, address_of(source)):
            return False
        return self._matches_names(fields)

    def _matches_names(self, fields: Mapping[str, Any]) -> bool:
        if fields["kind"] in REFUSAL_KINDS:
            named = _names_in(str(fields.get("object", "")))
            return all(not wanted or wanted in named for wanted in (self.broker, self.topic, self.cluster))
        for wanted, name, names in ((self.broker, "broker", "brokers"), (self.cluster, "cluster", "clusters")):
            if wanted and wanted != fields.get(name) and wanted not in fields.get(names, ()):
                return False
        return not self.topic or _concerns_topic(fields, self.topic)


def _names_in(named: str) -> set[str]:
    """The names in the object of a refusal: the parts of a path, or the values of `name=value`."""
    if named.startswith("/"):
        return set(named.split("/"))
    return {word.partition("=")[2] for word in named.split(" ")}


def _concerns_topic(fields: Mapping[str, Any], topic: str) -> bool:
    if any(item["t"] == topic for item in fields.get("queues", ())):
        return True
    return str(fields["kind"]).startswith("kv-") and fields.get("key") == topic


@dataclass(frozen=True, slots=True)
class Bounds:
    """What lies between two ids, both inclusive."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class ChangeSearch:
    filter: ChangeFilter
    changes: Bounds
    refusals: Bounds | None
    """None: only the history."""
    cursor: Cursor | None = None
    newest_first: bool = False
    limit: int = 100


@dataclass(frozen=True, slots=True)
class FoundEntry:
    id: EntryId
    fields: Mapping[str, Any]

    @property
    def is_change(self) -> bool:
        return self.fields["kind"] not in REFUSAL_KINDS


@dataclass(frozen=True, slots=True)
class ChangesPage:
    entries: Sequence[FoundEntry]
    cursor: Cursor
    has_more: bool
    """Whether more entries may follow at once."""


async def search_changes(namespace: Namespace, search: ChangeSearch) -> ChangesPage:
    budget = _Budget()
    wants_refusals = search.refusals is not None and search.filter.wants_refusals()
    changes = _Stream(namespace, namespace.keys.changes, search.changes, search, budget)
    refusals = _Stream(namespace, namespace.keys.refusals, search.refusals or search.changes, search, budget)
    cursor = search.cursor or Cursor(changes.before_first(), refusals.before_first())
    changes.start(cursor.change, is_wanted=search.filter.wants_changes())
    refusals.start(cursor.refusal, is_wanted=wants_refusals)
    found: list[FoundEntry] = []
    page_bytes, has_more = 0, True
    while len(found) < search.limit and page_bytes < MAX_PAGE_BYTES:
        change, refusal = await changes.head(), await refusals.head()
        if (change is None and not changes.is_over) or (refusal is None and not refusals.is_over):
            # The budget is spent, and a stream that was not read to its end may have the next entry.
            break
        if change is None and refusal is None:
            has_more = False
            break
        is_change_next = refusal is None or (change is not None and _is_first(change, refusal, search.newest_first))
        stream = changes if is_change_next else refusals
        entry_id, payload = stream.take()
        fields = await budget.parse(entry_id, payload, is_change=stream is changes)
        if fields and search.filter.matches(fields):
            found.append(FoundEntry(entry_id, fields))
            page_bytes += len(payload)
    return ChangesPage(found, Cursor(changes.taken, refusals.taken), has_more)


def _is_first(change: EntryId, refusal: EntryId, newest_first: bool) -> bool:
    """At the same time, a change counts as older than a refusal."""
    return change.ms > refusal.ms if newest_first else change.ms <= refusal.ms


@dataclass(frozen=True, slots=True)
class Position:
    """A place in time that a caller names: a version, the id of an entry, or a time."""

    version: int | None = None
    id: EntryId | None = None
    ms: int | None = None


async def bounds_of(
    namespace: Namespace, since: Position | None, until: Position | None
) -> tuple[Bounds, Bounds | None]:
    """Bounds in the history and in the refusals. A version selects only the history, which alone has versions."""
    first, refusals_first = _ZERO, _ZERO
    last = refusals_last = _MAX_ID
    if since is not None:
        if since.version is not None:
            first = await _id_of_version(namespace, since.version + 1)
        elif since.id is not None:
            first, refusals_first = _next(since.id), EntryId(since.id.ms + 1, 0)
        elif since.ms is not None:
            first = refusals_first = EntryId(since.ms, 0)
    if until is not None:
        if until.version is not None:
            last = await _id_of_version(namespace, until.version)
        elif until.id is not None:
            last, refusals_last = until.id, EntryId(until.id.ms, _MAX_ID.number)
        elif until.ms is not None:
            last = refusals_last = EntryId(until.ms, _MAX_ID.number)
    is_by_version = any(one is not None and one.version is not None for one in (since, until))
    return Bounds(first, last), None if is_by_version else Bounds(refusals_first, refusals_last)


async def newest_ids(namespace: Namespace) -> Cursor:
    """Where both streams end now."""
    ends = await namespace.client.pipeline(
        [("XREVRANGE", key, "+", "-", "COUNT", 1) for key in (namespace.keys.changes, namespace.keys.refusals)]
    )
    change, refusal = (EntryId(*split_id(end[0][0].decode())) if end else _ZERO for end in ends)
    return Cursor(change, refusal)


async def _id_of_version(namespace: Namespace, version: int) -> EntryId:
    first = await first_change(namespace)
    if first is None:
        return EntryId(0, version)
    newest = (await newest_ids(namespace)).change
    return EntryId(*await find_id(namespace, max(version, first[1]), first, newest))


@dataclass(slots=True)
class _Budget:
    """Remaining read budget of one page, for both streams together."""

    entries: int = MAX_SCANNED
    size: int = MAX_SCANNED_BYTES
    unyielded_bytes: int = 0

    @property
    def is_spent(self) -> bool:
        return self.entries <= 0 or self.size <= 0

    async def parse(self, entry_id: EntryId, payload: bytes, *, is_change: bool) -> Mapping[str, Any]:
        self.unyielded_bytes += len(payload)
        if self.unyielded_bytes >= STEP_BYTES:
            self.unyielded_bytes = 0
            await asyncio.sleep(0)
        return parse_change(str(entry_id).encode(), payload).fields if is_change else parse_refusal(payload)


@dataclass(slots=True)
class _Stream:
    """One of the two streams, read in chunks."""

    namespace: Namespace
    key: str
    bounds: Bounds
    search: ChangeSearch
    budget: _Budget
    taken: EntryId = _ZERO
    """The last entry that was taken."""
    is_over: bool = False
    _has_begun: bool = False
    _chunk: int = FIRST_CHUNK
    _read: list[tuple[EntryId, bytes]] = field(default_factory=list)
    """In reverse, so that the next one is at the end."""

    def before_first(self) -> EntryId:
        if self.search.newest_first:
            return _MAX_ID
        return _previous(self.bounds.first)

    def start(self, taken: EntryId, *, is_wanted: bool) -> None:
        self.taken = taken
        self.is_over = not is_wanted

    async def head(self) -> EntryId | None:
        """The next entry, if there is one and the budget allows to read it. The first chunk is always read, so that
        every page makes progress.
        """
        if not self._read and not self.is_over and not (self.budget.is_spent and self._has_begun):
            await self._read_chunk()
        return self._read[-1][0] if self._read else None

    def take(self) -> tuple[EntryId, bytes]:
        self.taken, payload = self._read.pop()
        return self.taken, payload

    async def _read_chunk(self) -> None:
        self._has_begun = True
        first, last = self.bounds.first, self.bounds.last
        if self.search.newest_first:
            last = min(last, _previous(self.taken))
            words = ("XREVRANGE", self.key, str(last), str(first))
        else:
            first = max(first, _next(self.taken))
            words = ("XRANGE", self.key, str(first), str(last))
        if first > last:
            self.is_over = True
            return
        reply = await self.namespace.client.call(*words, "COUNT", self._chunk)
        entries = [(EntryId(*split_id(name.decode())), fields[1]) for name, fields in reply]
        size = sum(len(payload) for _, payload in entries)
        self.is_over = len(entries) < self._chunk
        self.budget.entries -= len(entries)
        self.budget.size -= size
        if size * 2 <= CHUNK_BYTES:
            self._chunk = min(self._chunk * 2, MAX_CHUNK)
        elif size > CHUNK_BYTES:
            self._chunk = max(self._chunk // 4, 1)
        self._read = entries[::-1]


def _next(entry_id: EntryId) -> EntryId:
    return EntryId(entry_id.ms, entry_id.number + 1) if entry_id < _MAX_ID else entry_id


def _previous(entry_id: EntryId) -> EntryId:
    if entry_id.number:
        return EntryId(entry_id.ms, entry_id.number - 1)
    return EntryId(entry_id.ms - 1, _MAX_ID.number) if entry_id.ms else entry_id
