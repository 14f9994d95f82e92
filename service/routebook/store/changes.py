"""The history: one entry a change, as the scripts append it (docs/architecture.md, "The history")."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from routebook.errors import StoreUnsuitableError
from routebook.model.names import member_name
from routebook.store.namespace import Namespace

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
    def members(self) -> tuple[str, ...]:
        """Live entries that may have come, changed or gone with it."""
        if "addr" in self.fields:
            return (member_name(self.fields["cluster"], self.fields["addr"]),)
        return tuple(self.fields.get("members", ()))


def split_id(entry_id: str) -> tuple[int, int]:
    ms, _, version = entry_id.partition("-")
    return int(ms), int(version)


def parse_change(entry_id: bytes, payload: bytes) -> Change:
    ms, version = split_id(entry_id.decode())
    try:
        fields = json.loads(payload)
        return Change(ms, version, fields["kind"], fields)
    except (ValueError, KeyError, TypeError) as error:
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
