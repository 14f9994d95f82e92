"""The history: reading its entries, trimming it, and writing baselines and heartbeat gaps (docs/changes.md).

request_baseline, begin_baseline, append_baseline, end_baseline: the whole route table, written into the history.

append_heartbeat_gaps: the second stream, `pulse`.

append_refusals: the third stream, `refusals`. It is capped, and beside the history, so that a flood of refusals cannot
push changes out of it. Workers aggregate equal refusals before they write them (`observability/audit.py`). The store
gives each entry its id.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec

from routebook.errors import StoreUnsuitableError
from routebook.model.names import Caller, join_instance_name
from routebook.observability.audit import Refusal
from routebook.store.namespace import Namespace, Status, compact_json, pack_caller, pairs, status_of, text
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
    "identity-changed",
    "expiry-held",
    "expiry-released",
    "expiry-paused",
)
BASELINE_KINDS: Final = frozenset({"baseline-begin", "baseline-seat", "baseline-queues", "baseline-end"})
"""They repeat what the route table has. A reader that is up to date can skip them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history."""

    ms: int
    version: int
    kind: str
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.ms}-{self.version}"

    @property
    def broker(self) -> str | None:
        """The group that it changes, which a replica has to read again."""
        return self.fields.get("broker")

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics whose queue entries it changes; None if all of the group's may have changed.

        A removed group's queue entries are not listed: those that the name has afterwards may belong to a new group.
        """
        if self.kind == "write-permission" or self.fields.get("group_removed"):
            return None
        return frozenset(item["t"] for item in self.fields.get("queues", ()))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Groups whose static mappings it changes."""
        return tuple(self.fields.get("mapped", ()))

    @property
    def instance_names(self) -> tuple[str, ...]:
        """Instances that it may have added, changed or removed."""
        if "addr" in self.fields:
            return (join_instance_name(self.fields["cluster"], self.fields["addr"]),)
        return tuple(self.fields.get("instances", ()))


def split_id(entry_id: str) -> tuple[int, int]:
    ms, _, version = entry_id.partition("-")
    return int(ms), int(version)


_FORMER_KINDS: Final = {"blind": "expiry-paused"}
_FORMER_FIELDS: Final = {"members": "instances"}
"""Names in entries of earlier versions. The store cannot change an entry, so they are read with the current names."""


def parse_change(entry_id: bytes, payload: bytes) -> Change:
    ms, version = split_id(entry_id.decode())
    try:
        fields = {_FORMER_FIELDS.get(name, name): value for name, value in msgspec.json.decode(payload).items()}
        fields["kind"] = _FORMER_KINDS.get(fields["kind"], fields["kind"])
        return Change(ms, version, fields["kind"], fields)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreUnsuitableError(
            f"Entry {ms}-{version} of the history cannot be read: {error}.",
            advice="Something other than Routebook writes to this namespace.",
        ) from error


PARSE_STEP_BYTES: Final = 128 << 10
"""Bytes to parse before other work gets a turn; it takes less than a millisecond."""


async def _parse_entries(entries: list[Any]) -> list[Change]:
    changes: list[Change] = []
    size = 0
    for entry_id, fields in entries:
        payload = dict(zip(fields[::2], fields[1::2], strict=True))[b"d"]
        if size + len(payload) > PARSE_STEP_BYTES and changes:
            await asyncio.sleep(0)
            size = 0
        changes.append(parse_change(entry_id, payload))
        size += len(payload)
    return changes


async def read_changes(
    namespace: Namespace, after: tuple[int, int], *, count: int, block_ms: int | None = None
) -> list[Change]:
    """The entries after that id. With `block_ms` the call waits for the first one."""
    start = f"{after[0]}-{after[1]}"
    key = namespace.keys.changes
    if block_ms is None:
        reply = await namespace.client.call("XREAD", "COUNT", count, "STREAMS", key, start)
    else:
        reply = await namespace.client.call_blocking(
            "XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", key, start, block_ms=block_ms
        )
    return await _parse_entries(reply[0][1]) if reply else []


async def find_change(namespace: Namespace, ms: int, version: int) -> Change | None:
    entry = f"{ms}-{version}"
    found = await _parse_entries(await namespace.client.call("XRANGE", namespace.keys.changes, entry, entry))
    return found[0] if found else None


async def first_change(namespace: Namespace) -> tuple[int, int] | None:
    """Id of the oldest entry that is left."""
    reply = await namespace.client.call("XRANGE", namespace.keys.changes, "-", "+", "COUNT", 1)
    return split_id(reply[0][0].decode()) if reply else None


async def changes_between(namespace: Namespace, since_version: int, limit: int) -> list[Change]:
    """The entries after that version, oldest first."""
    first = await first_change(namespace)
    if first is None:
        return []
    newest = await namespace.client.call("XREVRANGE", namespace.keys.changes, "+", "-", "COUNT", 1)
    start = await find_id(namespace, max(since_version + 1, first[1]), first, split_id(newest[0][0].decode()))
    reply = await namespace.client.call("XRANGE", namespace.keys.changes, f"{start[0]}-{start[1]}", "+", "COUNT", limit)
    return await _parse_entries(reply)


async def find_id(namespace: Namespace, version: int, first: tuple[int, int], last: tuple[int, int]) -> tuple[int, int]:
    """An id at, or just before, the entry of that version. Ids begin with a time, so this is a binary search by time:
    for the largest ms whose first entry is not after that version.
    """
    low, high = first[0], last[0]
    while low < high:
        middle = (low + high + 1) // 2
        reply = await namespace.client.call("XRANGE", namespace.keys.changes, middle, "+", "COUNT", 1)
        if reply and split_id(reply[0][0].decode())[1] <= version:
            low = middle
        else:
            high = middle - 1
    return low, version


READ_BACK_BYTES: Final = 4 << 20
"""Bytes per call when a stream is read from its end."""


async def read_backward(
    namespace: Namespace, key: str, last: str, *, max_entries: int
) -> AsyncGenerator[tuple[tuple[int, int], bytes]]:
    """Ids and payloads of at most `max_entries`, newest first, beginning with the id `last`. The first reply is small,
    and later ones grow, because the size of an entry is unknown: up to 256 KiB.
    """
    count = 50
    while max_entries > 0:
        count = min(count, max_entries)
        reply = await namespace.client.call("XREVRANGE", key, last, "-", "COUNT", count)
        for entry_id, fields in reply:
            yield split_id(entry_id.decode()), fields[1]
        if len(reply) < count:
            return
        max_entries -= count
        last = "(" + reply[-1][0].decode()
        size = sum(len(fields[1]) for _, fields in reply)
        count = max(1, min(1_000, count * 4, int(count * READ_BACK_BYTES / max(size, 1))))


class BaselineSpan(NamedTuple):
    """A complete baseline in the history."""

    begin: int
    """Version of its first entry."""
    end: tuple[int, int]
    """Id of its last entry."""


async def find_baseline(namespace: Namespace, until_ms: int, *, max_entries: int) -> BaselineSpan | None:
    """The newest baseline that was complete at that time. Searches `max_entries` at most, without parsing them."""
    async for (ms, version), payload in read_backward(
        namespace, namespace.keys.changes, str(until_ms), max_entries=max_entries
    ):
        if _BASELINE_END in payload:
            change = parse_change(f"{ms}-{version}".encode(), payload)
            if change.kind == "baseline-end":
                return BaselineSpan(int(change.fields["begin"]), (ms, version))
    return None


_BASELINE_END: Final = b'"baseline-end"'


ENTRIES_PER_TRIM: Final = 2_000
"""Entries per XTRIM. That takes the store a few milliseconds if each has 60 KB."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The number of bytes that all entries up to this version had, since the store began to count."""

    version: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader that has durably consumed everything up to this version."""

    name: str
    version: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class HistoryState:
    newest: int
    newest_ms: int
    entries: int
    written_bytes: int
    """Size of all entries ever written."""
    marks: Sequence[Mark]
    """Oldest first."""
    readers: Sequence[Reader]
    unreadable_readers: Sequence[str]
    now_ms: int

    @property
    def first(self) -> int:
        """Version of the oldest entry; one more than the newest if there is none."""
        return self.newest - self.entries + 1

    @property
    def kept_bytes(self) -> int:
        """Size of the entries that are left, accurate to about a MiB."""
        before = [mark.bytes for mark in self.marks if mark.version <= self.first]
        return self.written_bytes - (before[-1] if before else 0)

    def first_within(self, max_bytes: int) -> int:
        """First version from which on the history has at most that many bytes; 0 if all of it fits."""
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
    known = {name: _reader(name, position) for name, position in pairs(readers).items()}
    return HistoryState(
        newest=int(meta[0] or 0),
        newest_ms=int(meta[1] or 0),
        entries=int(entries),
        written_bytes=int(meta[2] or 0),
        marks=[Mark(int(version), int(float(written))) for version, written in pairs(marks).items()],
        readers=[reader for reader in known.values() if reader],
        unreadable_readers=[name for name, reader in known.items() if reader is None],
        now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
    )


async def forget_reader(namespace: Namespace, name: str) -> bool:
    """Deletes the position of a reader, which then no longer delays trimming. A running reader writes its position
    again. Nothing else changes, so this needs no script and no entry in the history.
    """
    return bool(await namespace.client.call("HDEL", namespace.keys.readers, name))


def _reader(name: str, position: str) -> Reader | None:
    """From `<version> <ms>`; None for anything else, which must not hold back trimming."""
    version, _, seen_ms = position.partition(" ")
    if not (version.isdecimal() and seen_ms.isdecimal()):
        return None
    return Reader(name, int(version), int(seen_ms))


async def trim_history(namespace: Namespace, state: HistoryState, below: int) -> int:
    """Remove the entries older than that version, in limited steps. Returns how many were removed. The stream removes
    whole nodes, so up to a hundred older entries may remain.
    """
    first = await first_change(namespace)
    if first is None or first[1] >= below:
        return 0
    ms, version = await find_id(namespace, below, first, (state.newest_ms, state.newest))
    removed = 0
    while step := int(
        await namespace.client.call(
            "XTRIM", namespace.keys.changes, "MINID", "~", f"{ms}-{version}", "LIMIT", ENTRIES_PER_TRIM
        )
    ):
        removed += step
    await _remove_marks(namespace, state.marks, below)
    return removed


async def _remove_marks(namespace: Namespace, marks: Sequence[Mark], below: int) -> None:
    """All trimmed marks except for the newest, from which the size of the rest is counted."""
    old = [mark for mark in marks if mark.version < below]
    if len(old) > 1:
        await namespace.client.call("ZREMRANGEBYSCORE", namespace.keys.marks, "-inf", old[-2].bytes)


Cause = Literal["daily", "new-history", "trimmed", "operator"]


class FencedError(Exception):
    """Another worker is the leader now."""


async def request_baseline(namespace: Namespace, cause: Cause) -> int:
    """Returns the time (ms) of the first request that is waiting."""
    return int((await namespace.run("request_baseline", cause))[2])


async def begin_baseline(
    namespace: Namespace, lease: str, *, caller: Caller, cause: Cause, epoch: int | None = None
) -> tuple[int, str]:
    """Returns the version of its first entry, and the request that it fulfils."""
    reply = await namespace.run("begin_baseline", pack_caller(caller), lease, cause, epoch=epoch)
    _check_not_fenced(status_of(reply))
    return int(reply[1]), text(reply[2])


async def append_baseline(
    namespace: Namespace, lease: str, broker: str, cursor: str, *, caller: Caller, epoch: int | None = None
) -> tuple[int, str]:
    """Returns the number of entries of this part of a group, and the cursor of the next one; empty after the last."""
    reply = await namespace.run("append_baseline", pack_caller(caller), lease, broker, cursor, epoch=epoch)
    _check_not_fenced(status_of(reply))
    return int(reply[2]), text(reply[3])


async def end_baseline(
    namespace: Namespace,
    lease: str,
    begin: int,
    entries: int,
    request: str,
    *,
    caller: Caller,
    epoch: int | None = None,
) -> None:
    reply = await namespace.run("end_baseline", pack_caller(caller), lease, begin, entries, request, epoch=epoch)
    _check_not_fenced(status_of(reply))


async def write_baseline(namespace: Namespace, lease: str, *, caller: Caller, cause: Cause) -> AsyncGenerator[int]:
    """Writes a whole baseline, part by part, and yields the number of entries so far. FencedError ends it; so does a
    new connection (EpochEndedError), because a failover may have lost some of the parts.
    """
    epoch = namespace.client.epoch
    begin, request = await begin_baseline(namespace, lease, caller=caller, cause=cause, epoch=epoch)
    entries = 0
    yield entries
    for broker in sorted({name for _, names in await list_broker_names(namespace) for name in names}):
        cursor, is_complete = "", False
        while not is_complete:
            appended, cursor = await append_baseline(namespace, lease, broker, cursor, caller=caller, epoch=epoch)
            entries += appended
            is_complete = not cursor
            yield entries
    await end_baseline(namespace, lease, begin, entries, request, caller=caller, epoch=epoch)


def _check_not_fenced(status: Status) -> None:
    if status is Status.FENCED:
        raise FencedError


@dataclass(frozen=True, slots=True)
class BaselineState:
    """The last baseline, and the request that waits."""

    requested: Cause | None
    last_ms: int
    last_begin: int
    """Version of its first entry."""
    of_history: str
    """The history that the last one belongs to; empty if there was none."""
    history: str
    """The store's present one."""
    now_ms: int


async def read_baseline_state(namespace: Namespace) -> BaselineState:
    fields, now = await namespace.client.pipeline(
        [
            (
                *("HMGET", namespace.keys.meta),
                *("baseline_requested", "baseline_ms", "baseline_begin", "baseline_history", "history"),
            ),
            ("TIME",),
        ]
    )
    request = text(fields[0])
    return BaselineState(
        requested=_cause_of(request.partition(" ")[2]) if request else None,
        last_ms=int(fields[1] or 0),
        last_begin=int(fields[2] or 0),
        of_history=text(fields[3]),
        history=text(fields[4]),
        now_ms=int(now[0]) * 1000 + int(now[1]) // 1000,
    )


def _cause_of(stored: str) -> Cause:
    return "trimmed" if stored == "trimmed" else "operator"


ROWS_BYTES: Final = 200_000
"""Size of the rows in one entry, which has at most 256 KiB. More rows take more entries."""


@dataclass(frozen=True, slots=True)
class GapRow:
    """The heartbeat gaps of one seat. `buckets`: number of the bucket → number of gaps."""

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
    """Append one entry with packed rows, which must fit into it. Returns its version in the stream."""
    joined = "[" + ",".join(rows) + "]"
    reply = await namespace.run("append_heartbeat_gaps", compact_json(worker), span_ms, joined, max_bytes)
    return int(reply[1])


class SeatGaps(NamedTuple):
    """The heartbeat gaps of one seat in about one minute, counted by one worker."""

    from_ms: int
    to_ms: int
    broker_id: int
    gaps: int
    max_ms: int


MAX_GAP_ENTRIES: Final = 500
"""Entries of the stream that are searched for one group. A worker of a usual fleet writes one each minute."""


async def read_heartbeat_gaps(namespace: Namespace, broker: str, since_ms: int) -> list[SeatGaps]:
    """The gaps of one group, oldest first."""
    found: list[SeatGaps] = []
    named = f'"b":{json.dumps(broker, ensure_ascii=False)},'.encode()
    async for (ms, _), payload in read_backward(namespace, namespace.keys.pulse, "+", max_entries=MAX_GAP_ENTRIES):
        if ms < since_ms:
            break
        if named not in payload:
            continue
        entry = msgspec.json.decode(payload)
        found += [
            SeatGaps(entry["from_ms"], entry["to_ms"], row["i"], row["n"], row["max"])
            for row in entry["rows"]
            if row["b"] == broker
        ]
        await asyncio.sleep(0)
    return found[::-1]


MAX_KEPT: Final = 10_000
"""Entries, each of at most some 1.5 KB. The oldest are removed, one node of the stream at a time."""


async def append_refusals(namespace: Namespace, refusals: Sequence[Refusal]) -> None:
    key = namespace.keys.refusals
    await namespace.client.pipeline(
        [("XADD", key, "MAXLEN", "~", MAX_KEPT, "*", "d", compact_json(_fields(one))) for one in refusals]
    )


def _fields(refusal: Refusal) -> dict[str, Any]:
    caller = refusal.caller
    return {
        "v": 1,
        "kind": refusal.outcome,
        "actor": caller.actor,
        "source": caller.source,
        "worker": caller.worker,
        "port": caller.port,
        "verb": caller.verb,
        "object": refusal.what,
        "reason": refusal.reason,
        "count": refusal.count,
        "first_ms": refusal.first_ms,
    }


def parse_refusal(payload: bytes) -> dict[str, Any]:
    """Empty for an entry that something else has written."""
    try:
        fields = json.loads(payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) and fields.get("kind") in ("refused", "failed") else {}
