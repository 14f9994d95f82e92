"""The data source that Spark calls: `format("routebook")`, for batch and for streaming.

The caller decides where to start; the source does not know the lake. `ingest` passes the id of the lake's last entry as
`start_id`, and the source reads everything after it. (A store that lost its last changes and continued gives the same
version to another entry; only the time in the id tells the two apart.) Without `start_id`, `starting` decides.

Spark pickles these classes by reference and their objects with their state. It calls `read` on executors, again when
it repeats a task. So each `read` opens its own connection, and no connection is part of the state.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError
from routebook_pipeline.schemas import SOURCE
from routebook_pipeline.source.address import LARGE_REPLY_TIMEOUT_S, REPLY_TIMEOUT_S
from routebook_pipeline.source.decoding import FORMATS
from routebook_pipeline.source.options import LATEST, SourceOptions
from routebook_pipeline.source.reading import ReadOptions, read
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, EntryId, StreamReader, find_position, split_range

NAME: Final = "routebook"

Offset = dict[str, str]


def register(spark: SparkSession, url_env: str = DEFAULT_URL_ENV) -> None:
    """Makes the source known to the session.

    On one machine, Spark's Python processes get the environment in which the JVM started. The variable may have been
    set later, so it is passed on here. On a cluster, the operator sets it on the executors.
    """
    context = spark.sparkContext
    if url_env in os.environ and (context.master or "").startswith("local"):
        context.environment[url_env] = os.environ[url_env]
    spark.dataSource.register(RoutebookDataSource)


class RoutebookDataSource(DataSource):
    """Rows as in `schemas.SOURCE`: the unparsed entries, and for missing entries a row whose id begins with `hole:`.
    With the option `decoded`, the column `entry` has the fields of most entries, instead of their payload.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return FORMATS[self._options.stream].source_schema if self._options.decoded else SOURCE

    def reader(self, schema: StructType) -> "RoutebookBatchReader":  # noqa: ARG002 the schema is fixed
        return RoutebookBatchReader(self._options)

    def streamReader(self, schema: StructType) -> "RoutebookStreamReader":  # noqa: ARG002, N802 Spark's name
        return RoutebookStreamReader(self._options)


@dataclass
class StreamRange(InputPartition):
    """The entries of (start, end]. The ids are text because Spark pickles partitions."""

    start: str
    end: str


class _RangeReader:
    """Shared by both readers: splits a range into partitions, and reads one partition."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._stream = self._open()

    def _open(self, reply_timeout_s: float = REPLY_TIMEOUT_S) -> StreamReader:
        chosen = self.options
        return StreamReader(chosen.url_env, chosen.namespace, chosen.stream, reply_timeout_s=reply_timeout_s)

    def plan(self, start: EntryId, end: EntryId) -> list[StreamRange]:
        """Looks at the first entry after `start` before any task starts: if entries were trimmed there, the error names
        the whole missing range.
        """
        if start.version >= end.version:
            return []
        following = self._stream.first_after(start)
        if following is None or following.version > start.version + 1:
            if following is not None and not self.options.record_losses:
                last = min(following.version - 1, end.version)
                raise HistoryMissingError(self.options.namespace, start.version + 1, last)
            if self.options.record_losses and self.options.stream == CHANGES:
                self._stream.request_baseline()
        ranges = split_range(self._stream.first_at, start, end, self.options.entries_per_partition)
        return [StreamRange(str(first), str(last)) for first, last in ranges]

    def rows(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Runs on an executor. Spark invents a partition for a batch that has none; it is not a StreamRange."""
        if not isinstance(partition, StreamRange):
            return
        entry_format = FORMATS[self.options.stream] if self.options.decoded else None
        options = ReadOptions(self.options.chunk, self.options.record_losses, entry_format)
        with self._open(LARGE_REPLY_TIMEOUT_S) as stream:
            yield from read(stream, EntryId.parse(partition.start), EntryId.parse(partition.end), options)


class RoutebookBatchReader(_RangeReader, DataSourceReader):
    """Reads (start_id, end_id]; without them, everything in the stream."""

    def partitions(self) -> list[InputPartition]:
        with self._stream as stream:
            newest = stream.newest().id
            start = self.options.start_id or stream.earliest()
            end = self.options.end_id or newest
            stream.refuse_fork(start, newest)
            if end.version > newest.version:
                raise HistoryForkError(self.options.namespace, end.version, newest.version)
            return [*self.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self.rows(partition)


class RoutebookStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<stream key>": "<id of the last entry read>"}`; a batch is (start, end]. There is only one key
    because Spark compares the text of offsets: the same keys in another order would look like new data.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._target: EntryId | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        if self.options.start_id is not None:
            return self._offset(self.options.start_id)
        if self.options.starting == LATEST:
            return self._offset(self._stream.newest().id)
        return self._offset(self._stream.earliest())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        return ReadMaxRows(self.options.max_entries_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """Fixes the end of the query, before its first batch."""
        self._target = self._stream.newest().id

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 Spark's name
        """HistoryForkError when the stream does not continue `start`."""
        position = self._position(start)
        newest = self._stream.newest().id
        self._stream.refuse_fork(position, newest)
        end = newest if self._target is None else min(newest, self._target)
        if end.version <= position.version:
            return start
        wanted = position.version + limit.max_rows if isinstance(limit, ReadMaxRows) else end.version
        if wanted < end.version:
            end = find_position(self._stream.first_at, wanted, position.ms, end.ms)
        return self._offset(end)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 Spark's name
        return self._offset(self._stream.newest().id)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [*self.plan(self._position(start), self._position(end))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self.rows(partition)

    def stop(self) -> None:
        self._stream.close()

    def _offset(self, position: EntryId) -> Offset:
        return {self._stream.key: str(position)}

    def _position(self, offset: Mapping[str, Any]) -> EntryId:
        return EntryId.parse(offset[self._stream.key])
