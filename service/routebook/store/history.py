"""The history: one entry a change, as the scripts append it (docs/architecture.md, "The history").

How much of the history the store holds, who has read how far, and taking away what nobody needs.

request_baseline, begin_baseline, append_baseline, end_baseline: the whole table, written into the history.

append_heartbeat_gaps: heartbeat gaps, summed up.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from routebook.errors import StoreUnsuitableError
from routebook.model.names import Caller, join_instance_name
from routebook.store.namespace import Namespace, Status, status_of, text
from routebook.store.packing import compact_json, pack_caller, pairs
from routebook.store.reads import list_broker_names

KINDS: Final = (
    "broker-registered",
    "broker-changed",
    "broker-removed",
    "group-changed",
    "queues-changed",
    "write-permission",
    "kv-put",
    "kv-deleted",
    "settings-changed",
    "expiry-held",
    "expiry-released",
    "expiry-paused",
)
BASELINE_KINDS: Final = frozenset({"baseline-begin", "baseline-seat", "baseline-queues", "baseline-end"})
"""They say again what is so, and change nothing: nobody who has followed the history needs them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history. Its id `<ms>-<version>` is the version every answer speaks of."""

    ms: int
    version: int
    kind: str
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.ms}-{self.version}"

    @property
    def broker(self) -> str | None:
        """The group it is about, whose image has to be read anew."""
        return self.fields.get("broker")

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics whose queues it names; None when all of the group's may have changed.

        A removed group took its queues along without naming them: what is there afterwards may be another one's.
        """
        if self.kind == "write-permission" or self.fields.get("group_removed"):
            return None
        return frozenset(item["t"] for item in self.fields.get("queues", ()))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Groups whose static mappings were written by it."""
        return tuple(self.fields.get("mapped", ()))

    @property
    def instance_names(self) -> tuple[str, ...]:
        """Live entries that may have come, changed or gone with it."""
        if "addr" in self.fields:
            return (join_instance_name(self.fields["cluster"], self.fields["addr"]),)
        return tuple(self.fields.get("instances", ()))


def split_id(entry_id: str) -> tuple[int, int]:
    ms, _, version = entry_id.partition("-")
    return int(ms), int(version)


_FORMER_KINDS: Final = {"blind": "expiry-paused"}
_FORMER_FIELDS: Final = {"members": "instances"}
"""Names in entries that earlier versions wrote: the store cannot change an entry, so it is read with today's names."""


def parse_change(entry_id: bytes, payload: bytes) -> Change:
    ms, version = split_id(entry_id.decode())
    try:
        fields = {_FORMER_FIELDS.get(name, name): value for name, value in json.loads(payload).items()}
        fields["kind"] = _FORMER_KINDS.get(fields["kind"], fields["kind"])
        return Change(ms, version, fields["kind"], fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreUnsuitableError(
            f"Entry {ms}-{version} of the history cannot be read: {error}.",
            advice="Something other than Routebook writes to this namespace.",
        ) from error


def _parse_entries(entries: list[Any]) -> list[Change]:
    return [
        parse_change(entry_id, dict(zip(fields[::2], fields[1::2], strict=True))[b"d"]) for entry_id, fields in entries
    ]


async def read_changes(
    namespace: Namespace, after: tuple[int, int], *, count: int, block_ms: int | None = None
) -> list[Change]:
    """What came after that id; waits for something when `block_ms` is given."""
    start = f"{after[0]}-{after[1]}"
    key = namespace.keys.changes
    if block_ms is None:
        reply = await namespace.client.call("XREAD", "COUNT", count, "STREAMS", key, start)
    else:
        reply = await namespace.client.call_blocking(
            "XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", key, start, block_ms=block_ms
        )
    return _parse_entries(reply[0][1]) if reply else []


async def has_change(namespace: Namespace, ms: int, version: int) -> bool:
    entry = f"{ms}-{version}"
    return bool(await namespace.client.call("XRANGE", namespace.keys.changes, entry, entry))


async def first_change(namespace: Namespace) -> tuple[int, int] | None:
    """Id of the oldest entry that trimming has left."""
    reply = await namespace.client.call("XRANGE", namespace.keys.changes, "-", "+", "COUNT", 1)
    return split_id(reply[0][0].decode()) if reply else None


async def changes_between(namespace: Namespace, since_version: int, limit: int) -> list[Change]:
    """The entries after that version, oldest first. An id begins with a time, so its place is found by halving."""
    first = await first_change(namespace)
    if first is None:
        return []
    newest = await namespace.client.call("XREVRANGE", namespace.keys.changes, "+", "-", "COUNT", 1)
    start = await place_of(namespace, max(since_version + 1, first[1]), first, split_id(newest[0][0].decode()))
    reply = await namespace.client.call("XRANGE", namespace.keys.changes, f"{start[0]}-{start[1]}", "+", "COUNT", limit)
    return _parse_entries(reply)


async def place_of(
    namespace: Namespace, version: int, first: tuple[int, int], last: tuple[int, int]
) -> tuple[int, int]:
    """An id at or just before the entry of that version: the largest ms whose first entry is not beyond it."""
    low, high = first[0], last[0]
    while low < high:
        middle = (low + high + 1) // 2
        reply = await namespace.client.call("XRANGE", namespace.keys.changes, middle, "+", "COUNT", 1)
        if reply and split_id(reply[0][0].decode())[1] <= version:
            low = middle
        else:
            high = middle - 1
    return low, version


ENTRIES_PER_TRIM: Final = 2_000
"""Up to so many leave in one step, 60 KB each at worst: some milliseconds of the store."""


@dataclass(frozen=True, slots=True)
class Mark:
    """All entries up to this version took so many bytes, since the store began to count."""

    version: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who has everything up to this version safely."""

    name: str
    version: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class HistoryState:
    newest: int
    newest_ms: int
    entries: int
    written_bytes: int
    """Ever."""
    marks: Sequence[Mark]
    """Oldest first."""
    readers: Sequence[Reader]
    unreadable_readers: Sequence[str]
    now_ms: int

    @property
    def first(self) -> int:
        """Version of the oldest entry kept; one beyond the newest when nothing is."""
        return self.newest - self.entries + 1

    @property
    def kept_bytes(self) -> int:
        """To about a MiB."""
        before = [mark.bytes for mark in self.marks if mark.version <= self.first]
        return self.written_bytes - (before[-1] if before else 0)

    def first_within(self, max_bytes: int) -> int:
        """From which version on the history fits into so many bytes; 0: all of it does."""
        if self.written_bytes <= max_bytes:
            return 0
        fitting = (mark.version + 1 for mark in self.marks if self.written_bytes - mark.bytes <= max_bytes)
        return next(fitting, self.newest)


async def read_history_state(namespace: Namespace) -> HistoryState:
    meta, entries, marks, readers, now = await namespace.client.pipeline(
        [
            ("HMGET", namespace.keys.meta, "version", "ms", "bytes"),
            ("XLEN", namespace.keys.changes),
            ("ZRANGE", namespace.keys.marks, 0, -1, "WITHSCORES"),
            ("HGETALL", namespace.keys.readers),
            ("TIME",),
        ]
    )
    said = {name: _reader(name, place) for name, place in pairs(readers).items()}
    return HistoryState(
        newest=int(meta[0] or 0),
        newest_ms=int(meta[1] or 0),
        entries=int(entries),
        written_bytes=int(meta[2] or 0),
        marks=[Mark(int(version), int(float(written))) for version, written in pairs(marks).items()],
        readers=[reader for reader in said.values() if reader],
        unreadable_readers=[name for name, reader in said.items() if reader is None],
        now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
    )


def _reader(name: str, place: str) -> Reader | None:
    """`<version> <ms>`; None for anything else, which must not keep the history for ever."""
    version, _, seen_ms = place.partition(" ")
    if not (version.isdecimal() and seen_ms.isdecimal()):
        return None
    return Reader(name, int(version), int(seen_ms))


async def trim_history(namespace: Namespace, state: HistoryState, below: int) -> int:
    """Takes away what is older than that version, in bounded steps; how many entries went. Whole nodes of the stream
    go, so up to a hundred entries more may stay.
    """
    first = await first_change(namespace)
    if first is None or first[1] >= below:
        return 0
    ms, version = await place_of(namespace, below, first, (state.newest_ms, state.newest))
    gone = 0
    while step := int(
        await namespace.client.call(
            "XTRIM", namespace.keys.changes, "MINID", "~", f"{ms}-{version}", "LIMIT", ENTRIES_PER_TRIM
        )
    ):
        gone += step
    await _forget_marks(namespace, state.marks, below)
    return gone


async def _forget_marks(namespace: Namespace, marks: Sequence[Mark], below: int) -> None:
    """All but the newest of those that are trimmed: what is kept is counted from there."""
    old = [mark for mark in marks if mark.version < below]
    if len(old) > 1:
        await namespace.client.call("ZREMRANGEBYSCORE", namespace.keys.marks, "-inf", old[-2].bytes)


Cause = Literal["daily", "new-history", "trimmed", "operator"]


class FencedError(Exception):
    """Another one leads by now."""


async def request_baseline(namespace: Namespace, why: Cause) -> int:
    """Since when (ms) one is wanted."""
    return int((await namespace.run("request_baseline", why))[2])


async def begin_baseline(namespace: Namespace, lease: str, *, caller: Caller, cause: Cause) -> tuple[int, str]:
    """Version of its first entry, and the wish that it fulfils."""
    reply = await namespace.run("begin_baseline", pack_caller(caller), lease, cause)
    _check_leads(status_of(reply))
    return int(reply[1]), text(reply[2])


async def append_baseline(
    namespace: Namespace, lease: str, broker: str, place: str, *, caller: Caller
) -> tuple[int, str]:
    """How many entries one part of a group took, and where the next begins; empty after the last."""
    reply = await namespace.run("append_baseline", pack_caller(caller), lease, broker, place)
    _check_leads(status_of(reply))
    return int(reply[2]), text(reply[3])


async def end_baseline(
    namespace: Namespace, lease: str, begin: int, entries: int, wish: str, *, caller: Caller
) -> None:
    reply = await namespace.run("end_baseline", pack_caller(caller), lease, begin, entries, wish)
    _check_leads(status_of(reply))


async def write_baseline(namespace: Namespace, lease: str, *, caller: Caller, cause: Cause) -> AsyncGenerator[int]:
    """All of one, a step a part; yields the number of entries so far. FencedError ends it."""
    begin, wish = await begin_baseline(namespace, lease, caller=caller, cause=cause)
    entries = 0
    yield entries
    for broker in sorted({name for _, names in await list_broker_names(namespace) for name in names}):
        place, is_told = "", False
        while not is_told:
            appended, place = await append_baseline(namespace, lease, broker, place, caller=caller)
            entries += appended
            is_told = not place
            yield entries
    await end_baseline(namespace, lease, begin, entries, wish, caller=caller)


def _check_leads(status: Status) -> None:
    if status is Status.FENCED:
        raise FencedError


@dataclass(frozen=True, slots=True)
class BaselineState:
    """What the store says of baselines. `of_history`: the one that the last belongs to; empty when there was none."""

    requested: Cause | None
    last_ms: int
    last_begin: int
    """Version of its first entry."""
    of_history: str
    now_ms: int


async def read_baseline_state(namespace: Namespace) -> BaselineState:
    fields, now = await namespace.client.pipeline(
        [
            ("HMGET", namespace.keys.meta, "baseline_requested", "baseline_ms", "baseline_begin", "baseline_history"),
            ("TIME",),
        ]
    )
    wish = text(fields[0])
    return BaselineState(
        requested=_cause_of(wish.partition(" ")[2]) if wish else None,
        last_ms=int(fields[1] or 0),
        last_begin=int(fields[2] or 0),
        of_history=text(fields[3]),
        now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
    )


def _cause_of(why: str) -> Cause:
    return "trimmed" if why == "trimmed" else "operator"


ROWS_BYTES: Final = 200_000
"""What one entry takes; more rows are more entries. No reader expects more than 256 KiB."""


@dataclass(frozen=True, slots=True)
class GapRow:
    """The gaps of one seat. `buckets`: number of the bucket -> how many."""

    cluster: str
    broker: str
    broker_id: int
    max_ms: int
    buckets: Mapping[int, int]

    def pack(self) -> str:
        pairs = ",".join(f"[{bucket},{count}]" for bucket, count in sorted(self.buckets.items()))
        count = sum(self.buckets.values())
        names = f'"c":{json.dumps(self.cluster, ensure_ascii=False)},"b":{json.dumps(self.broker, ensure_ascii=False)}'
        return f'{{{names},"i":{self.broker_id},"n":{count},"max":{self.max_ms},"h":[{pairs}]}}'


async def append_heartbeat_gaps(
    namespace: Namespace, worker: str, rows: Sequence[str], *, span_ms: int, max_bytes: int
) -> int:
    """One entry of packed rows that fit into one; its version in the stream."""
    joined = "[" + ",".join(rows) + "]"
    reply = await namespace.run("append_heartbeat_gaps", compact_json(worker), span_ms, joined, max_bytes)
    return int(reply[1])
