"""Files on their way into a table: written by Spark, not yet in its log.

Each attempt writes below a random folder of its own, so that what it made is what lies there; when it fails, all of
that goes, and a crash leaves only files that no table refers to.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.folders import FoundFile, check_spark_reaches
from routebook_pipeline.lake.tables import BOUNDS, RAW, REWRITES, DataFile, PinnedTable, Table

ROWS_TOGETHER: Final = 1 << 20
"""In a row group of a joined file: each has pages and statistics for every column. Arrow cuts at so many, too."""
BYTES_TOGETHER: Final = 128 << 20
"""Of rows that are held in memory to be written as one group: 400,000 changes."""


class ConcurrentCommitError(Exception):
    """Another writer moved a record that this commit moves. Nothing was committed: look again, and try again."""


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
        """One action over `rows`, which have the partition as a column."""
        check_spark_reaches(rows.sparkSession, self.folder)
        rows.write.partitionBy(self.table.partition).option("compression", "zstd").parquet(self.folder.for_spark)
        found = [file for file in self.folder.files() if file.path.endswith(".parquet")]
        self.added = [action for file in found if (action := self._action(file)) is not None]

    def join(self, files: list[DataFile], columns: StructType) -> None:
        """The rows of files of one day, as one. What an older one lacks is null."""
        schema = to_arrow_schema(columns)
        path = f"{self.table.partition}={files[0].day}/joined-{len(self.added)}.zstd.parquet"
        with self.folder.writer(path, schema) as writer:
            found = (batch for file in files for batch in self.table.folder.batches(file.path))
            for group in in_groups(_in_shape(batch, schema) for batch in found):
                writer.write_table(pyarrow.Table.from_batches(group))
        self.take(path)

    def take(self, path: str) -> None:
        """A file that was written below `folder`."""
        action = self._action(FoundFile(path, self.folder.size(path), time.time_ns() // 1_000_000))
        self.added += [action] if action is not None else []

    def remove(self) -> None:
        self.folder.remove()

    def is_committed(self) -> bool:
        """Asked of the log: who was interrupted, or lost the answer of an object store, may have committed all the
        same.
        """
        added = {action.path for action in self.added}
        return bool(added) and any(file.path in added for file in self.table.pin().files)

    def _action(self, file: FoundFile) -> AddAction | None:
        path = f"{self._name}/{file.path}"
        footer = self.table.folder.footer(path)
        if footer.num_rows == 0:
            return None
        folder = file.path.split("/")[0]
        day = folder.removeprefix(f"{self.table.partition}=")
        stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        columns = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
        for name in BOUNDS:
            found = [group.column(columns[name]).statistics for group in groups] if name in columns else []
            if found and all(each is not None and each.has_min_max for each in found):
                stats["minValues"][name] = min(each.min for each in found)
                stats["maxValues"][name] = max(each.max for each in found)
        if RAW in columns:
            stats["nullCount"][RAW] = sum(group.column(columns[RAW]).statistics.null_count for group in groups)
        return AddAction(path, file.size, {self.table.partition: day}, file.modified_ms, True, json.dumps(stats))


@contextmanager
def write_attempt(table: Table) -> Iterator[WriteAttempt]:
    """What it wrote is removed when the block fails, unless the table refers to it, or nobody can tell."""
    started = WriteAttempt(table)
    try:
        yield started
    except BaseException:
        # What failed first is what counts, and `vacuum` removes what stays.
        with suppress(UnreachableError):
            if not started.is_committed():
                started.remove()
        raise


def in_groups(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[list[pyarrow.RecordBatch]]:
    """As many as fit together; each at least one."""
    group: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if group and (rows > ROWS_TOGETHER or size > BYTES_TOGETHER):
            yield group
            group, rows, size = [], batch.num_rows, batch.nbytes
        group.append(batch)
    if group:
        yield group


def _in_shape(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    known = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in known else pyarrow.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def utc_day(ms: Column) -> Column:
    """The UTC day, whatever the session's zone."""
    return F.date_add(F.lit("1970-01-01").cast("date"), F.floor(ms / 86_400_000).cast("int")).cast("string")


def commit_files(
    pinned: PinnedTable,
    added: list[AddAction],
    *,
    records: dict[str, int],
    metadata: dict[str, Any] | None = None,
    removed: list[DataFile] | None = None,
    replaced_day: str | None = None,
    same_rows: bool = False,
) -> None:
    """One commit. `records` are moved with it: OvertakenError when somebody moved one of them since `pinned`. A commit
    that takes files away moves REWRITES, too.

    `removed`: files whose place the added ones take, with `same_rows` or with others. `replaced_day`: all its files
    are.
    """
    partition = pinned.table.partition
    if removed or replaced_day is not None:
        records = {**records, REWRITES: (pinned.record(REWRITES) or 0) + 1}
    for action in added:
        action.data_change = not same_rows
    # From now on, `vacuum` counts the days.
    now_ms = time.time_ns() // 1_000_000
    gone = [RemoveAction(file.path, not same_rows, now_ms, file.size, {partition: file.day}) for file in removed or []]
    with pinned.table.reaching("written to"), _overtaken():
        pinned.delta.create_write_transaction(
            [*added, *gone],
            mode="append" if replaced_day is None else "overwrite",
            schema=pinned.delta.schema(),
            partition_by=[partition],
            partition_filters=None if replaced_day is None else [(partition, "=", replaced_day)],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, number) for name, number in records.items()],
                custom_metadata=metadata or {},
            ),
        )


@contextmanager
def _overtaken() -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        if "oncurrent" in str(error):
            raise ConcurrentCommitError(str(error)) from error
        raise
