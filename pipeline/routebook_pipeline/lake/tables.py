"""The tables of a namespace: Delta tables, whose files Spark writes and the `deltalake` library commits.

A table is what its log says at one version. Spark never lists the folder: it gets the files of one pinned version. So a
question sees the same state throughout, whatever is committed, joined or deleted meanwhile.

Beside files, the log of a table holds *records*: named numbers, stored as Delta's application transactions. A commit
changes files and records together.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast, overload

import pyarrow
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from routebook_pipeline.errors import UnreachableError, WrongUsageError
from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.lake.folders import Folder, check_spark_reaches, reaching
from routebook_pipeline.schemas import CHANGES, PULSES

CHECKPOINT_COMMITS: Final = 100
"""After this many commits the log is summarised in a checkpoint: opening a table reads the checkpoint and the commits
after it.
"""

BOUNDS: Final = ("ord", "ms")
"""Columns whose minimum and maximum per file are in the log. Files are selected by them."""
RAW: Final = "raw"
"""Column whose nulls per file are counted in the log. This finds the files with unreadable entries."""
COLUMNS_WITH_STATISTICS: Final = (*BOUNDS, RAW)

HISTORY: Final = "history"
"""Record: the name of the stream's history, as a number (`StreamReader.history`)."""
OBSERVED: Final = "observed_ms"
"""Record: the store clock when the end of the last batch was read."""
LAST_MS: Final = "last_ms"
"""Record: the time in the id of the last entry, read or lost. A stream that has another time for the same version is
another history.
"""
REWRITES: Final = "rewrites"
"""Record: the number of commits that removed files. `deltalake` lets two writers replace the same files, which would
double every row; but it refuses two writers that change the same record.
"""

_NOT_DECODABLE: Final = re.compile(r"\\|%[0-9A-Fa-f]{2}")
"""Characters in a path that `deltalake` decodes once too often."""


@dataclass(frozen=True)
class DataFile:
    """A file of a table, as described in its log."""

    path: str
    size: int
    rows: int
    day: str
    first_ord: int | None
    last_ord: int | None
    first_ms: int | None
    last_ms: int | None
    readable_rows: int | None
    """None when the log has no count."""


@dataclass(frozen=True)
class DayFiles:
    """The files of one day of a table, summed up."""

    day: str
    first_ord: int
    last_ord: int
    raw: int
    """Rows that could not be parsed."""


_COLUMNS: Final = {
    "path": "path",
    "size": "size_bytes",
    "rows": "num_records",
    "first_ord": "min.ord",
    "last_ord": "max.ord",
    "first_ms": "min.ms",
    "last_ms": "max.ms",
    "readable_rows": f"null_count.{RAW}",
}
"""Field of `DataFile` -> column of the list of files that `deltalake` gives. (The day's depends on the partition.)"""


class Files(Sequence[DataFile]):
    """Files of a table, sorted by their first `ord`. They stay in Arrow's memory, some 200 bytes each: a long history
    has hundreds of thousands, and a question selects a few of them.
    """

    def __init__(self, table: pyarrow.Table) -> None:
        """`table` has a column for each field of `DataFile`."""
        self._table = table

    @classmethod
    def from_log(cls, actions: pyarrow.Table, partition: str) -> "Files":
        columns: dict[str, Any] = {}
        for name, column in {**_COLUMNS, "day": f"partition.{partition}"}.items():
            kind = pyarrow.string() if name in ("path", "day") else pyarrow.int64()
            is_there = column in actions.column_names
            columns[name] = actions.column(column).cast(kind) if is_there else pyarrow.nulls(len(actions), kind)
        # Tables without `ord`, such as stored answers, are sorted by path.
        columns["order"] = compute.coalesce(columns["first_ord"], pyarrow.scalar(0, pyarrow.int64()))
        table = pyarrow.table(columns).sort_by([("order", "ascending"), ("path", "ascending")])
        return cls(table.drop_columns("order"))

    def where(self, condition: compute.Expression) -> "Files":
        return Files(self._table.filter(condition))

    def overlapping(self, start_ms: int, end_ms: int) -> "Files":
        """The files that may have rows of [start_ms, end_ms)."""
        first, last = compute.field("first_ms"), compute.field("last_ms")
        return self.where((last.is_null() | (last >= start_ms)) & (first.is_null() | (first < end_ms)))

    @property
    def paths(self) -> list[str]:
        return cast("list[str]", self._table.column("path").to_pylist())

    def lowest(self, name: str) -> int | None:
        return cast("int | None", compute.min(self._table.column(name)).as_py())

    def highest(self, name: str) -> int | None:
        return cast("int | None", compute.max(self._table.column(name)).as_py())

    @property
    def days(self) -> list[str]:
        return cast("list[str]", sorted(compute.unique(self._table.column("day")).to_pylist()))

    def by_day(self) -> "list[DayFiles]":
        """By rising day, from sums that Arrow makes: a list of all files would need a gigabyte for a long history."""
        # Without a count, any row may be raw text.
        readable = compute.coalesce(self._table.column("readable_rows"), pyarrow.scalar(0, pyarrow.int64()))
        raw = compute.subtract(self._table.column("rows"), readable)
        grouped = self._table.append_column("raw", raw).group_by("day")
        sums = grouped.aggregate([("first_ord", "min"), ("last_ord", "max"), ("raw", "sum")])
        return [
            DayFiles(row["day"], row["first_ord_min"] or 0, row["last_ord_max"] or 0, row["raw_sum"] or 0)
            for row in sums.sort_by("day").to_pylist()
        ]

    @property
    def rows(self) -> int:
        return int(compute.sum(self._table.column("rows")).as_py() or 0)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[DataFile]:
        for batch in self._table.to_batches(max_chunksize=_AT_ONCE):
            for row in batch.to_pylist():
                yield DataFile(**row)

    @overload
    def __getitem__(self, at: int) -> DataFile: ...
    @overload
    def __getitem__(self, at: slice) -> "Files": ...
    def __getitem__(self, at: int | slice) -> "DataFile | Files":
        if isinstance(at, slice):
            return Files(self._table.take(list(range(*at.indices(len(self))))))
        (row,) = self._table.take([at % len(self) if -len(self) <= at < len(self) else at]).to_pylist()
        return DataFile(**row)


_AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class Position:
    """How far a table follows its stream."""

    era: int
    version: int

    @property
    def ord(self) -> int:
        return self.era * ERA_SHIFT + self.version

    @classmethod
    def of(cls, ord: int) -> "Position":  # noqa: A002 the column's name
        return cls(*divmod(ord, ERA_SHIFT))


@dataclass(frozen=True)
class Table:
    """`columns` are those in the files. `partition` is in the log and in the names of folders."""

    namespace: str
    folder: Folder
    name: str
    columns: StructType
    partition: str = "day"

    @property
    def delta_schema(self) -> Schema:
        return Schema.from_json(StructType([*self.columns.fields, StructField(self.partition, StringType())]).json())

    def exists(self) -> bool:
        with self.reaching("opened"):
            return bool(DeltaTable.is_deltatable(self.folder.for_deltalake))

    def create(self) -> None:
        """Creates the table, or adds columns that are new in this release."""
        with self.reaching("created"):
            try:
                self._create()
            except CommitFailedError:
                # Another process has just created it, or added the same columns.
                self._create()

    def _create(self) -> None:
        if not self.exists():
            DeltaTable.create(
                self.folder.for_deltalake,
                self.delta_schema,
                mode="ignore",
                partition_by=[self.partition],
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                    # By default the log has statistics of the first 32 columns only.
                    "delta.dataSkippingStatsColumns": ",".join(set(COLUMNS_WITH_STATISTICS) & set(self.columns.names)),
                },
            )
        table = DeltaTable(self.folder.for_deltalake)
        existing = {field.name for field in table.schema().fields}
        added = [field for field in self.delta_schema.fields if field.name not in existing]
        if added:
            table.alter.add_columns(added)

    def pin(self) -> "PinnedTable":
        """The table at its newest version."""
        with self.reaching("opened"):
            try:
                return PinnedTable(self, DeltaTable(self.folder.for_deltalake))
            except TableNotFoundError as error:
                raise UnreachableError(
                    f"There is no table {self.name!r} at {self.folder.uri}. Name the lake that `routebook pipeline "
                    "ingest` writes (--lake, --namespace), or start it."
                ) from error

    def reaching(self, action: str) -> AbstractContextManager[None]:
        """Wraps every call of `deltalake`."""
        return reaching(f"The table {self.name!r} at {self.folder.uri}", action)


class PinnedTable:
    """A table at one version. Later commits are not visible; one that conflicts with a commit from here fails it."""

    def __init__(self, table: Table, delta: DeltaTable) -> None:
        self.table, self.delta = table, delta
        self.version = delta.version()

    def record(self, name: str) -> int | None:
        """Reads the whole log each time. For many records, see `all_records`."""
        with self.table.reaching("read"):
            return self.delta.transaction_version(name)

    @property
    def position(self) -> Position | None:
        """None when nothing was ever committed from the stream."""
        ord = self.record(self.table.name)  # noqa: A001 the column's name
        return None if ord is None else Position.of(ord)

    @property
    def stream_position(self) -> tuple[int, int] | None:
        """Time and version in the id of the last entry; None when nothing was ever committed from the stream."""
        position, ms = self.position, self.record(LAST_MS)
        return None if position is None or ms is None else (ms, position.version)

    @cached_property
    def columns(self) -> StructType:
        """The columns in the log. A newer release may have added some, which a rewrite of the files must keep."""
        schema = StructType.fromJson(json.loads(self.delta.schema().to_json()))
        return StructType([field for field in schema.fields if field.name != self.table.partition])

    @property
    def history(self) -> int | None:
        return self.record(HISTORY)

    @property
    def observed_ms(self) -> int | None:
        return self.record(OBSERVED)

    @cached_property
    def files(self) -> Files:
        with self.table.reaching("read"):
            return Files.from_log(pyarrow.table(self.delta.get_add_actions(flatten=True)), self.table.partition)

    def read(self, spark: SparkSession, files: Files | None = None) -> DataFrame:
        """The rows of these files, by default of all. UnreachableError when one of them is missing: there is never an
        answer from a part of them.
        """
        return self.read_files(spark, (self.files if files is None else files).paths)

    def read_files(self, spark: SparkSession, paths: list[str], columns: StructType | None = None) -> DataFrame:
        """Columns that an older file lacks are null. `columns`: read these instead of those of this release."""
        schema = columns or self.table.columns
        if not paths:
            return spark.createDataFrame([], schema)
        root = self.table.folder
        check_spark_reaches(spark, root)
        root.check_files_exist(paths)
        reader = spark.read.schema(schema)
        return reader.parquet(*((root / path).for_spark_reader for path in paths))


@dataclass(frozen=True)
class Lake:
    """`root` has a folder for each namespace."""

    root: str
    namespace: str

    @cached_property
    def folder(self) -> Folder:
        root = Folder.of(self.root)
        if _NOT_DECODABLE.search(root.uri):
            raise WrongUsageError(
                f"A lake cannot be kept in {self.root!r}: the library that reads the tables misreads a backslash, and "
                "a % followed by two digits. Choose a path without them."
            )
        # A namespace may be called "..", but none has a @ in its name.
        name = self.namespace if self.namespace.strip(".") else f"@{self.namespace}"
        return root / name

    @property
    def changes(self) -> Table:
        return Table(self.namespace, self.folder / "changes", "changes", CHANGES)

    @property
    def pulses(self) -> Table:
        """Gaps between heartbeats."""
        return Table(self.namespace, self.folder / "pulses", "pulses", PULSES)

    @property
    def snapshots(self) -> Table:
        """Rows of `changes`. The partition is a day; its rows hold everything that matters at the start of that day."""
        return Table(self.namespace, self.folder / "snapshots", "snapshots", CHANGES)

    def stored_answers(self) -> list[Table]:
        """Existing tables of stored answers, without their columns, also of questions that no longer exist."""
        return [self.answers(name, StructType()) for name in (self.folder / "answers").subfolders()]

    def answers(self, question: str, columns: StructType) -> Table:
        """The partition is not called `day` because an answer may have such a column."""
        return Table(
            self.namespace, self.folder / "answers" / question, f"answers/{question}", columns, partition="of_day"
        )

    def checkpoints(self, stream: str) -> Folder:
        """Spark's streaming checkpoints; may be deleted at any time."""
        return self.folder / "checkpoints" / stream


_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.[\w-]+)*\.parquet")
"""A checkpoint of one file, or one of several parts."""
_OTHER_FORMATS: Final = {"parts", "v2Checkpoint"}
"""Checkpoints with one of these fields have other file names."""


def all_records(pinned: PinnedTable) -> dict[str, int]:
    """All records by name, from a single reading of the log: its last checkpoint and the commits after it."""
    log = pinned.table.folder / "_delta_log"
    since, records = _checkpointed_records(log, pinned.version)
    for version in range(since + 1, pinned.version + 1):
        text = log.text(f"{version:020}.json")
        if text is None:
            raise UnreachableError(
                f"The log of the table {pinned.table.name!r} at {pinned.table.folder.uri} lacks its version {version}. "
                "Restore the table from a backup."
            )
        for line in text.splitlines():
            transaction = json.loads(line).get("txn")
            if transaction is not None:
                records[transaction["appId"]] = transaction["version"]
    return records


def _checkpointed_records(log: Folder, newest: int) -> tuple[int, dict[str, int]]:
    """The version of the last checkpoint, and the records in it; -1 without a checkpoint."""
    version, paths = _named_checkpoint(log, newest) or _found_checkpoint(log, newest)
    records: dict[str, int] = {}
    for path in paths:
        for batch in log.batches(path):
            if "txn" in batch.schema.names:
                records |= {txn["appId"]: txn["version"] for txn in batch.column("txn").to_pylist() if txn}
    return version, records


def _named_checkpoint(log: Folder, newest: int) -> tuple[int, list[str]] | None:
    """The checkpoint named in `_last_checkpoint`, which avoids listing a log of a month. None when it is newer than
    the pinned version, or has another format.
    """
    named = json.loads(log.text("_last_checkpoint") or "{}")
    version = named.get("version", newest + 1)
    if version > newest or _OTHER_FORMATS & named.keys():
        return None
    return version, [f"{version:020}.checkpoint.parquet"]


def _found_checkpoint(log: Folder, newest: int) -> tuple[int, list[str]]:
    found = [(int(name[1]), name[0]) for file in log.files() if (name := _CHECKPOINT.fullmatch(file.path))]
    version = max((each for each, _ in found if each <= newest), default=-1)
    return version, [path for each, path in found if each == version]
