"""A stream of one namespace to test with, and the rows that a reader made of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow

from routebook_pipeline.source.address import open_client
from routebook_pipeline.source.data_source import (
    RoutebookBatchReader,
    RoutebookDataSource,
    RoutebookStreamReader,
    StreamRange,
)
from routebook_pipeline.source.stream import EntryId, key_of

URL_ENV = "ROUTEBOOK_REDIS_URL"
BEGAN_MS = 1_700_000_000_000


class Stream:
    def __init__(self, url: str, namespace: str, name: str = "changes") -> None:
        self.namespace = namespace
        self.key = key_of(namespace, name)
        self.client: Any = open_client(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.delete(self.key)
        self.client.close()

    def append(self, entries: Iterable[tuple[EntryId, bytes]]) -> list[EntryId]:
        with self.client.pipeline(transaction=False) as pipe:
            added = []
            for entry_id, payload in entries:
                pipe.execute_command("XADD", self.key, str(entry_id), "d", payload)
                added.append(entry_id)
            pipe.execute()
        return added

    def fill(self, last: int, first: int = 1, ms: int = BEGAN_MS, step_ms: int = 1) -> list[EntryId]:
        """Versions first … last."""
        return self.append(
            (EntryId(ms + version * step_ms, version), payload_of(version)) for version in range(first, last + 1)
        )

    def trim_below(self, entry_id: EntryId) -> None:
        self.client.execute_command("XTRIM", self.key, "MINID", str(entry_id))

    def delete(self, *ids: EntryId) -> None:
        self.client.execute_command("XDEL", self.key, *map(str, ids))

    def drop(self) -> int:
        """Like a store that lost everything."""
        return int(self.client.delete(self.key))

    def options(self, **more: str) -> dict[str, str]:
        return {"namespace": self.namespace, "url_env": URL_ENV, **more}

    def batch_reader(self, **more: str) -> RoutebookBatchReader:
        source = RoutebookDataSource(self.options(**more))
        return source.reader(source.schema())

    def stream_reader(self, **more: str) -> RoutebookStreamReader:
        source = RoutebookDataSource(self.options(**more))
        return source.streamReader(source.schema())

    def offset(self, position: EntryId) -> dict[str, str]:
        return {self.key: str(position)}


def payload_of(version: int) -> bytes:
    return json.dumps({"v": 1, "kind": "kv-put", "number": version}).encode()


@dataclass(frozen=True)
class Rows:
    """The rows that a reader returned, in order."""

    rows: Sequence[tuple[str, bytes]]

    @staticmethod
    def of(batches: Iterable[pyarrow.RecordBatch]) -> "Rows":
        return Rows([(row["entry_id"], row["payload"]) for batch in batches for row in batch.to_pylist()])

    @property
    def holes(self) -> list[tuple[int, int]]:
        holes: list[Mapping[str, int]] = [
            json.loads(payload) for name, payload in self.rows if name.startswith("hole:")
        ]
        return [(hole["from_version"], hole["to_version"]) for hole in holes]

    @property
    def versions(self) -> list[int]:
        """Versions of the entries, without those in holes."""
        return [EntryId.parse(name).version for name, _ in self.rows if not name.startswith("hole:")]

    @property
    def all_versions(self) -> list[int]:
        """Versions of the entries and of the holes, in the order of the rows."""
        found: list[int] = []
        for name, payload in self.rows:
            if name.startswith("hole:"):
                hole = json.loads(payload)
                found += range(hole["from_version"], hole["to_version"] + 1)
            else:
                found.append(EntryId.parse(name).version)
        return found


def read_all(reader: RoutebookBatchReader | RoutebookStreamReader, ranges: Iterable[object]) -> Rows:
    rows: list[tuple[str, bytes]] = []
    for part in ranges:
        assert isinstance(part, StreamRange)
        rows += Rows.of(reader.read(part)).rows
    return Rows(rows)
