"""Reads everything between two positions of the stream; nothing is left out silently.

Invariant: the versions start+1 … end are expected one by one. The rows returned so far, hole rows included, cover
exactly start+1 … position. Each round moves `position`, so no version is skipped or repeated, however the stream is
trimmed meanwhile.
"""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError
from routebook_pipeline.source.decoding import EntryFormat, decode
from routebook_pipeline.source.stream import EntryId, StreamReader

HOLE_PREFIX: Final = "hole:"
"""Prefix of the entry_id of a row that stands for missing versions. No entry of the stream can have such an id,
whatever its payload contains.
"""
FIELD: Final = b"d"
TARGET_REPLY_BYTES: Final = 16 * 1024 * 1024
FIRST_CHUNK: Final = 64
"""An entry has at most 256 KiB, so the first reply never exceeds the target. The next ones may be twice as long each,
while there is room.
"""
ARROW: Final = pyarrow.schema([("entry_id", pyarrow.string()), ("payload", pyarrow.binary())])


def hole_row(position: EntryId, last: int) -> tuple[str, bytes]:
    """The row for the missing versions after `position`, up to `last`."""
    first = position.version + 1
    payload = {"v": 1, "kind": "hole", "from_version": first, "to_version": last}
    return f"{HOLE_PREFIX}{EntryId(position.ms, first)}", json.dumps(payload, separators=(",", ":")).encode()


@dataclass(frozen=True)
class ReadOptions:
    chunk: int
    record_losses: bool
    decodes: EntryFormat | None = None
    """Add the column `entry`, with the fields of the entries that are certainly readable."""


def read(stream: StreamReader, start: EntryId, end: EntryId, options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of (start, end]. HistoryMissingError when entries are missing and losses are not recorded;
    HistoryForkError when the stream does not continue the same history.
    """
    position, size = start, min(FIRST_CHUNK, options.chunk)
    while position.version < end.version:
        with _garbage_collector_off():
            batch, position, size = _read_round(stream, position, end, size, options)
        yield batch


def _read_round(
    stream: StreamReader, position: EntryId, end: EntryId, size: int, options: ReadOptions
) -> tuple[pyarrow.RecordBatch, EntryId, int]:
    """One reply: its rows, the position after them, and the number of entries to ask for next."""
    builder = _BatchBuilder(stream.namespace, position, options)
    entries = stream.entries(position, end, size)
    builder.add_entries(entries)
    if not entries:
        # No entry up to the end: they were removed, or never existed in this history.
        stream.refuse_fork(end, stream.newest().id)
        builder.add_hole(end.version)
    return builder.batch(), builder.position, next_size(size, options.chunk, builder.payload_bytes)


@contextmanager
def _garbage_collector_off() -> Iterator[None]:
    """A reply is ten thousand new lists without a reference cycle. Python would search them for cycles again and again,
    which takes half of the reading time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def next_size(size: int, chunk: int, reply_bytes: int) -> int:
    """Number of entries to ask for after a reply with `size` entries and `reply_bytes` bytes."""
    if reply_bytes > TARGET_REPLY_BYTES:
        return max(1, size // 2)
    if reply_bytes <= TARGET_REPLY_BYTES // 2:
        return min(chunk, size * 2)
    return size


class _BatchBuilder:
    def __init__(self, namespace: str, position: EntryId, options: ReadOptions) -> None:
        self._namespace, self._options = namespace, options
        self.position = position
        """Everything up to here is in the batches."""
        self._ids: list[str | bytes] = []
        self._payloads: list[bytes] = []

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self._payloads))

    def batch(self) -> pyarrow.RecordBatch:
        ids = pyarrow.array(self._ids, pyarrow.string())
        if self._options.decodes is None:
            return pyarrow.RecordBatch.from_arrays([ids, pyarrow.array(self._payloads, pyarrow.binary())], schema=ARROW)
        payloads, entries = decode(self._payloads, self._options.decodes)
        schema = ARROW.append(pyarrow.field("entry", entries.type))
        return pyarrow.RecordBatch.from_arrays([ids, payloads, entries], schema=schema)

    def add_entries(self, entries: list[Any]) -> None:
        if not entries:
            return
        first, last = EntryId.parse(entries[0][0]), EntryId.parse(entries[-1][0])
        if first.version == self.position.version + 1 and last.version == self.position.version + len(entries):
            self._append(entries)
            self.position = last
            return
        for entry in entries:
            entry_id = EntryId.parse(entry[0])
            if entry_id.version <= self.position.version:
                raise HistoryForkError(self._namespace, self.position.version, entry_id.version)
            if entry_id.version > self.position.version + 1:
                self.add_hole(entry_id.version - 1)
            self._append([entry])
            self.position = entry_id

    def add_hole(self, last: int) -> None:
        """The versions after `position`, up to `last`, are missing."""
        if not self._options.record_losses:
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
    """Of an entry with fields other than ours. Without a field `d` it is empty, and later found unreadable."""
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(FIELD, b"")
