"""How much of the history the store holds, who has read how far, and taking away what nobody needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routebook.store.changes import first_change, place_of
from routebook.store.namespace import Namespace
from routebook.store.packing import pairs

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
