"""Rows in the place of missing versions: made by the reader, understood by whoever parses entries.

Everything between two places of the stream, and nothing silently left out.

Invariant: behind `start`, versions start+1 … end are expected, one by one. What has been handed out so far, hole rows
included, is exactly start+1 … place; each round moves `place`, so that no version is missed or doubled however the
stream is trimmed meanwhile.
"""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError
from routebook_pipeline.source.stream import EntryId, StreamReader

HOLE_PREFIX: Final = "hole:"
"""Of the entry_id of such a row. An entry of the stream cannot have such an id, whatever its payload claims."""


def hole_row(place: EntryId, last: int) -> tuple[str, bytes]:
    """For the versions behind `place` up to `last`."""
    first = place.version + 1
    payload = {"v": 1, "kind": "hole", "from_version": first, "to_version": last}
    return f"{HOLE_PREFIX}{EntryId(place.ms, first)}", json.dumps(payload, separators=(",", ":")).encode()


FIELD: Final = b"d"
REPLY_BYTES: Final = 16 * 1024 * 1024
FIRST_CHUNK: Final = 64
"""An entry has at most 256 KiB: the first reply stays within the bound whatever is in it, and each one with room to
spare lets the next be twice as long.
"""
ARROW: Final = pyarrow.schema([("entry_id", pyarrow.string()), ("payload", pyarrow.binary())])


@dataclass(frozen=True)
class ReadOptions:
    """What to do with a range."""

    chunk: int
    record_losses: bool


def read(stream: StreamReader, start: EntryId, end: EntryId, how: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """Behind `start`, up to and including `end`. HistoryMissingError for a loss unless those are recorded;
    HistoryForkError when what follows is not the same history.
    """
    place, size = start, min(FIRST_CHUNK, how.chunk)
    while place.version < end.version:
        with _without_collector():
            batch, place, size = _round(stream, place, end, size, how)
        yield batch


def _round(
    stream: StreamReader, place: EntryId, end: EntryId, size: int, how: ReadOptions
) -> tuple[pyarrow.RecordBatch, EntryId, int]:
    """One reply: its rows, where they end, and how many to ask for next."""
    rows = _Rows(stream.namespace, place, how)
    entries = stream.entries(place, end, size)
    rows.take(entries)
    if not entries:
        # Nothing up to the end: gone, or never there in this history.
        stream.refuse_fork(end, stream.newest().id)
        rows.miss(end.version)
    return rows.batch(), rows.position, next_size(size, how.chunk, rows.payload_bytes)


@contextmanager
def _without_collector() -> Iterator[None]:
    """A reply is ten thousand young lists without a cycle among them, and Python would look through them for one again
    and again: half of the time that reading takes.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def next_size(size: int, chunk: int, reply_bytes: int) -> int:
    """How many entries to ask for after a reply of so many bytes."""
    if reply_bytes > REPLY_BYTES:
        return max(1, size // 2)
    if reply_bytes <= REPLY_BYTES // 2:
        return min(chunk, size * 2)
    return size


class _Rows:
    """One batch on its way."""

    def __init__(self, namespace: str, place: EntryId, how: ReadOptions) -> None:
        self._namespace, self._how = namespace, how
        self.position = place
        self._ids: list[str | bytes] = []
        self._payloads: list[bytes] = []

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self._payloads))

    def batch(self) -> pyarrow.RecordBatch:
        columns = [pyarrow.array(self._ids, pyarrow.string()), pyarrow.array(self._payloads, pyarrow.binary())]
        return pyarrow.RecordBatch.from_arrays(columns, schema=ARROW)

    def take(self, entries: list[Any]) -> None:
        if not entries:
            return
        first, last = EntryId.parse(entries[0][0]), EntryId.parse(entries[-1][0])
        if first.version == self.position.version + 1 and last.version == self.position.version + len(entries):
            self._append(entries)
            self.position = last
            return
        for entry in entries:
            found = EntryId.parse(entry[0])
            if found.version <= self.position.version:
                raise HistoryForkError(self._namespace, self.position.version, found.version)
            if found.version > self.position.version + 1:
                self.miss(found.version - 1)
            self._append([entry])
            self.position = found

    def miss(self, last: int) -> None:
        """The versions behind our place up to `last` are not there."""
        if not self._how.record_losses:
            raise HistoryMissingError(self._namespace, self.position.version + 1, last)
        entry_id, payload = hole_row(self.position, last)
        self._ids.append(entry_id)
        self._payloads.append(payload)
        self.position = EntryId(self.position.ms, last)

    def _append(self, entries: list[Any]) -> None:
        self._ids += [entry[0] for entry in entries]
        self._payloads += [
            fields[1] if len(fields) == 2 and fields[0] == FIELD else _payload(fields) for _, fields in entries
        ]


def _payload(fields: list[bytes]) -> bytes:
    """Of an entry with other fields than ours; without `d` it is empty, which nobody can read."""
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(FIELD, b"")
