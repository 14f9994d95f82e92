"""The tables of a namespace: Delta, written by Spark and committed by the `deltalake` wheel.

A table is what its log says at one version. Spark never looks into the folder: it is given the files of a pinned
version, so that a question sees one state throughout, whatever is committed, joined or thrown away meanwhile.

All records of a table in one reading of its log.

The wheel reads the whole log for every record that it is asked for; who wants hundreds of them would read it hundreds
of times. What a checkpoint holds counts, and what was committed behind it.
"""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from routebook_pipeline.errors import UnreachableError, WrongUsageError
from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.lake.folders import Folder, check_spark_reaches, reaching
from routebook_pipeline.schemas import CHANGES, PULSES

CHECKPOINT_COMMITS: Final = 100
"""So many entries of the log are joined into one file: opening reads that and what follows."""

BOUNDS: Final = ("ord", "ms")
"""Their least and greatest value stand in the log: files are chosen by them."""
RAW: Final = "raw"
"""Its nulls are counted in the log: the files in which something is not readable are found by that."""
IN_THE_LOG: Final = (*BOUNDS, RAW)

OBSERVED: Final = "observed_ms"
"""Name of the record of when the end of the last batch was noted."""
LAST_MS: Final = "last_ms"
"""Name of the record of the time in the id of the last entry, read or lost: a stream that has another entry under the
same version is another history.
"""
REWRITES: Final = "rewrites"
"""Counts the commits that take files away, whatever they put in their place. The wheel lets two of them replace the
same files, and every row would be there twice; two writers of one record it does refuse.
"""

_MISREAD: Final = re.compile(r"\\|%[0-9A-Fa-f]{2}")
"""Decoded once more by the wheel, though they are decoded already."""


@dataclass(frozen=True)
class DataFile:
    """As the log has it."""

    path: str
    size: int
    rows: int
    day: str
    first_ord: int | None
    last_ord: int | None
    first_ms: int | None
    last_ms: int | None
    readable_rows: int | None
    """Rows that are readable; None when nobody counted."""


Chosen = Callable[[DataFile], bool]


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
    """`columns` are those in the files; `partition` stands in the log, and in the names of folders."""

    namespace: str
    folder: Folder
    name: str
    columns: StructType
    partition: str = "day"

    @property
    def delta_schema(self) -> Schema:
        return Schema.from_json(StructType([*self.columns.fields, StructField(self.partition, StringType())]).json())

    def exists(self) -> bool:
        with self.reaching("looked for"):
            return bool(DeltaTable.is_deltatable(self.folder.for_wheel))

    def make(self) -> None:
        """Does nothing when it is there already, but for columns that are new since."""
        with self.reaching("made"):
            try:
                self._make()
            except CommitFailedError:
                # Somebody else has just made it, or added the same columns.
                self._make()

    def _make(self) -> None:
        if not self.exists():
            DeltaTable.create(
                self.folder.for_wheel,
                self.delta_schema,
                mode="ignore",
                partition_by=[self.partition],
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                    # Unless named, only those of the first 32 columns are known when the log is read.
                    "delta.dataSkippingStatsColumns": ",".join(set(IN_THE_LOG) & set(self.columns.names)),
                },
            )
        table = DeltaTable(self.folder.for_wheel)
        known = {field.name for field in table.schema().fields}
        added = [field for field in self.delta_schema.fields if field.name not in known]
        if added:
            table.alter.add_columns(added)

    def pin(self) -> "PinnedTable":
        """At its newest version."""
        with self.reaching("opened"):
            try:
                return PinnedTable(self, DeltaTable(self.folder.for_wheel))
            except TableNotFoundError as error:
                raise UnreachableError(
                    f"There is no table {self.name!r} at {self.folder.uri}. Name the lake that `routebook pipeline "
                    "ingest` writes (--lake, --namespace), or start it."
                ) from error

    def reaching(self, doing: str) -> AbstractContextManager[None]:
        """Around all that is asked of the wheel."""
        return reaching(f"The table {self.name!r} at {self.folder.uri}", doing)


class PinnedTable:
    """A table at one version. What was committed since is not seen; a commit of its own makes it stale."""

    def __init__(self, table: Table, delta: DeltaTable) -> None:
        self.table, self.delta = table, delta
        self.version = delta.version()

    def record(self, name: str) -> int | None:
        """The number that the last commit with a transaction of this name left."""
        with self.table.reaching("read"):
            return self.delta.transaction_version(name)

    @property
    def position(self) -> Position | None:
        """None when nothing was ever committed from the stream."""
        ord = self.record(self.table.name)  # noqa: A001 the column's name
        return None if ord is None else Position.of(ord)

    @property
    def stream_position(self) -> tuple[int, int] | None:
        """Time and version of the id of the last entry; None when nothing was ever committed from the stream."""
        place, ms = self.position, self.record(LAST_MS)
        return None if place is None or ms is None else (ms, place.version)

    @cached_property
    def columns(self) -> StructType:
        """As the log has them: a newer release may have added some. Who writes rows again must not lose any."""
        known = StructType.fromJson(json.loads(self.delta.schema().to_json()))
        return StructType([field for field in known.fields if field.name != self.table.partition])

    @property
    def observed_ms(self) -> int | None:
        return self.record(OBSERVED)

    @cached_property
    def files(self) -> list[DataFile]:
        with self.table.reaching("read"):
            actions = pyarrow.table(self.delta.get_add_actions(flatten=True)).to_pylist()
        return sorted(map(self._file, actions), key=lambda file: (file.first_ord or 0, file.path))

    def _file(self, action: dict[str, Any]) -> DataFile:
        return DataFile(
            path=action["path"],
            size=action["size_bytes"],
            rows=action["num_records"],
            day=action[f"partition.{self.table.partition}"],
            first_ord=action.get("min.ord"),
            last_ord=action.get("max.ord"),
            first_ms=action.get("min.ms"),
            last_ms=action.get("max.ms"),
            readable_rows=action.get("null_count.raw"),
        )

    def read(self, spark: SparkSession, chosen: Chosen = lambda _: True) -> DataFrame:
        """The rows of the chosen files. UnreachableError when one of them is gone: never an answer from the rest."""
        return self.read_files(spark, [file.path for file in self.files if chosen(file)])

    def read_files(self, spark: SparkSession, paths: list[str], columns: StructType | None = None) -> DataFrame:
        """What an older file lacks is null. `columns`: others than this release knows."""
        schema = columns or self.table.columns
        if not paths:
            return spark.createDataFrame([], schema)
        root = self.table.folder
        check_spark_reaches(spark, root)
        root.check_for(paths)
        reader = spark.read.schema(schema)
        return reader.parquet(*((root / path).for_spark_to_read for path in paths))


@dataclass(frozen=True)
class Lake:
    """`root` holds a folder for each namespace."""

    root: str
    namespace: str

    @cached_property
    def folder(self) -> Folder:
        root = Folder.of(self.root)
        if _MISREAD.search(root.uri):
            raise WrongUsageError(
                f"A lake cannot be kept in {self.root!r}: the library that reads tables takes a backslash, and a % "
                "before two digits, for other characters. Choose a name without."
            )
        # A namespace may be called "..", and none has a @ in its name.
        name = self.namespace if self.namespace.strip(".") else f"@{self.namespace}"
        return root / name

    @property
    def changes(self) -> Table:
        return Table(self.namespace, self.folder / "changes", "changes", CHANGES)

    @property
    def pulses(self) -> Table:
        return Table(self.namespace, self.folder / "pulses", "pulses", PULSES)

    @property
    def snapshots(self) -> Table:
        """Rows of `changes`; the partition is the day at whose start they are everything that matters."""
        return Table(self.namespace, self.folder / "snapshots", "snapshots", CHANGES)

    def kept_answers(self) -> list[Table]:
        """Those that are there, also of questions that nobody asks any more. Their columns are the asker's business."""
        return [self.answers(name, StructType()) for name in (self.folder / "answers").folders()]

    def answers(self, question: str, columns: StructType) -> Table:
        """The partition has a name of its own: an answer may have a column `day`."""
        return Table(
            self.namespace, self.folder / "answers" / question, f"answers/{question}", columns, partition="of_day"
        )

    def checkpoints(self, stream: str) -> Folder:
        """Spark's own; may be deleted at any time."""
        return self.folder / "checkpoints" / stream


_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.[\w-]+)*\.parquet")
"""Of one file or of several parts."""
_OTHER_FORMS: Final = {"parts", "v2Checkpoint"}
"""Of a checkpoint, whose files have other names."""


def all_records(pinned: PinnedTable) -> dict[str, int]:
    """Name -> number, as `Pinned.record` has them one by one."""
    log = pinned.table.folder / "_delta_log"
    since, records = _checkpointed(log, pinned.version)
    for version in range(since + 1, pinned.version + 1):
        text = log.text(f"{version:020}.json")
        if text is None:
            raise UnreachableError(
                f"The log of the table {pinned.table.name!r} at {pinned.table.folder.uri} lacks its version {version}. "
                "Restore the table from a backup."
            )
        for line in text.splitlines():
            said = json.loads(line).get("txn")
            if said is not None:
                records[said["appId"]] = said["version"]
    return records


def _checkpointed(log: Folder, newest: int) -> tuple[int, dict[str, int]]:
    """The last version in the last checkpoint, and the records there; -1 without one."""
    version, paths = _told(log, newest) or _found(log, newest)
    records: dict[str, int] = {}
    for path in paths:
        for batch in log.batches(path):
            if "txn" in batch.schema.names:
                records |= {said["appId"]: said["version"] for said in batch.column("txn").to_pylist() if said}
    return version, records


def _told(log: Folder, newest: int) -> tuple[int, list[str]] | None:
    """By the log itself: a log of a month is not listed for it. It may tell of a later one, or of another form."""
    said = json.loads(log.text("_last_checkpoint") or "{}")
    version = said.get("version", newest + 1)
    if version > newest or _OTHER_FORMS & said.keys():
        return None
    return version, [f"{version:020}.checkpoint.parquet"]


def _found(log: Folder, newest: int) -> tuple[int, list[str]]:
    found = [(int(name[1]), name[0]) for file in log.files() if (name := _CHECKPOINT.fullmatch(file.path))]
    version = max((each for each, _ in found if each <= newest), default=-1)
    return version, [path for each, path in found if each == version]
