"""Writes to a table: Spark writes files, then one commit adds them to the table's log.

Each attempt writes below a random folder of its own, so that the files in it are exactly its files. When the attempt
fails, the folder is removed. A crash leaves only files that no table refers to.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.folders import FoundFile, check_spark_reaches
from routebook_pipeline.lake.tables import BOUNDS, RAW, REWRITES, DataFile, PinnedTable, Table

MAX_GROUP_ROWS: Final = 1 << 20
"""Rows in a row group of a joined file: each group has pages and statistics for every column. Arrow has the same
limit.
"""
MAX_GROUP_BYTES: Final = 128 << 20
"""Bytes of rows held in memory for one row group: 400,000 changes."""


class ConcurrentCommitError(Exception):
    """Another writer changed a record that this commit changes. Nothing was committed; read the table and try again."""


class WriteAttempt:
    def __init__(self, table: Table) -> None:
        self.table = table
        self._name = f"data/{secrets.token_hex(8)}"
        self.folder = table.folder / self._name
        self.added: list[AddAction] = []

    @property
    def rows(self) -> int:
        return sum(json.loads(action.stats)["numRecords"] for action in self.added)

    def write(self, rows: DataFrame) -> None:
        """Runs one Spark action. `rows` have the partition as a column."""
        check_spark_reaches(rows.sparkSession, self.folder)
        rows.write.partitionBy(self.table.partition).option("compression", "zstd").parquet(self.folder.for_spark)
        files = [file for file in self.folder.files() if file.path.endswith(".parquet")]
        self.added = [action for file in files if (action := self._action(file)) is not None]

    def join(self, files: Sequence[DataFile], columns: StructType) -> None:
        """Writes the rows of several files of one day into one. Columns that an older file lacks are null."""
        schema = to_arrow_schema(columns)
        path = f"{self.table.partition}={files[0].day}/joined-{len(self.added)}.zstd.parquet"
        with self.folder.writer(path, schema) as writer:
            batches = (batch for file in files for batch in self.table.folder.batches(file.path))
            for group in in_groups(_with_schema(batch, schema) for batch in batches):
                writer.write_table(pyarrow.Table.from_batches(group))
        self.add_file(path)

    def add_file(self, path: str) -> None:
        """Adds a file that was written below `folder` without Spark."""
        action = self._action(FoundFile(path, self.folder.size(path), time.time_ns() // 1_000_000))
        self.added += [action] if action is not None else []

    def remove(self) -> None:
        self.folder.remove()

    def is_committed(self) -> bool:
        """Reads the log: a writer that was interrupted, or that got no answer from an object store, may have committed
        nevertheless.
        """
        added = [action.path for action in self.added]
        return bool(added) and bool(self.table.pin().files.where(compute.field("path").isin(added)))

    def _action(self, file: FoundFile) -> AddAction | None:
        path = f"{self._name}/{file.path}"
        footer = self.table.folder.footer(path)
        if footer.num_rows == 0:
            return None
        day = file.path.split("/")[0].removeprefix(f"{self.table.partition}=")
        stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        columns = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        for name in BOUNDS:
            of_groups = [group.column(columns[name]).statistics for group in groups] if name in columns else []
            if of_groups and all(each is not None and each.has_min_max for each in of_groups):
                stats["minValues"][name] = min(each.min for each in of_groups)
                stats["maxValues"][name] = max(each.max for each in of_groups)
        if RAW in columns:
            stats["nullCount"][RAW] = sum(group.column(columns[RAW]).statistics.null_count for group in groups)
        return AddAction(path, file.size, {self.table.partition: day}, file.modified_ms, True, json.dumps(stats))


@contextmanager
def write_attempt(table: Table) -> Iterator[WriteAttempt]:
    """When the block fails, removes the files, unless the table refers to them or its log cannot be read."""
    attempt = WriteAttempt(table)
    try:
        yield attempt
    except BaseException:
        # The first error counts; `vacuum` removes the files that stay.
        with suppress(UnreachableError):
            if not attempt.is_committed():
                attempt.remove()
        raise


def in_groups(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[list[pyarrow.RecordBatch]]:
    """Groups within the limits of rows and bytes, of at least one batch each."""
    group: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if group and (rows > MAX_GROUP_ROWS or size > MAX_GROUP_BYTES):
            yield group
            group, rows, size = [], batch.num_rows, batch.nbytes
        group.append(batch)
    if group:
        yield group


def _with_schema(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in names else pyarrow.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def utc_day(ms: Column) -> Column:
    """The UTC day, whatever the time zone of the session."""
    return F.date_add(F.lit("1970-01-01").cast("date"), F.floor(ms / 86_400_000).cast("int")).cast("string")


def commit_files(
    pinned: PinnedTable,
    added: list[AddAction],
    *,
    records: dict[str, int],
    metadata: dict[str, Any] | None = None,
    removed: Sequence[DataFile] | None = None,
    replaced_days: Sequence[str] = (),
    same_rows: bool = False,
) -> None:
    """One commit. It sets `records`: ConcurrentCommitError when another commit since `pinned` changed one of them. A
    commit that removes files also changes REWRITES.

    `removed`: files that the added ones replace; with `same_rows`, the rows are the same. `replaced_days`: all files of
    these days are replaced. A writer of such a day must change a record of it.
    """
    partition = pinned.table.partition
    removed = list(removed or [])
    if replaced_days:
        removed += pinned.files.where(compute.field("day").isin(list(replaced_days)))
    if removed or replaced_days:
        records = {**records, REWRITES: (pinned.record(REWRITES) or 0) + 1}
    for action in added:
        action.data_change = not same_rows
    # `vacuum` deletes a removed file some days after this time.
    now_ms = time.time_ns() // 1_000_000
    gone = [RemoveAction(file.path, not same_rows, now_ms, file.size, {partition: file.day}) for file in removed]
    with pinned.table.reaching("written to"), _conflicts():
        pinned.delta.create_write_transaction(
            [*added, *gone],
            mode="append",
            schema=pinned.delta.schema(),
            partition_by=[partition],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, number) for name, number in records.items()],
                custom_metadata=metadata or {},
            ),
        )


@contextmanager
def _conflicts() -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        if "oncurrent" in str(error):
            raise ConcurrentCommitError(str(error)) from error
        raise
