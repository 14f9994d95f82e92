"""`format("routebook")`: batch and streaming.

Where to begin is the caller's: the source does not know the lake. The ingest gives the id of the lake's last entry as
`start_id`, and everything behind it is read. (In a store that lost its tail and went on, the same version is another
entry, and only the time in its id tells.) Without `start_id`: `starting`.

Spark pickles these classes by reference and their objects with their state, and calls `read` on executors, again when a
task is repeated: so a connection is made by who needs it and is never part of the state.
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
from routebook_pipeline.source.options import LATEST, SourceOptions
from routebook_pipeline.source.reading import ReadOptions, read
from routebook_pipeline.source.stream import DEFAULT_URL_ENV, EntryId, StreamReader, cut, find_position

NAME: Final = "routebook"

Offset = dict[str, str]


def register(spark: SparkSession, url_env: str = DEFAULT_URL_ENV) -> None:
    """Makes the source known to the session.

    On one machine, Spark's Python processes have the environment in which the JVM started, which may be older than the
    variable: it is handed to them. On a cluster, setting it on the executors is the operator's.
    """
    context = spark.sparkContext
    if url_env in os.environ and (context.master or "").startswith("local"):
        context.environment[url_env] = os.environ[url_env]
    spark.dataSource.register(RoutebookDataSource)


class RoutebookDataSource(DataSource):
    """Rows as `schemas.SOURCE`: the entries as they are, and for missing ones a row with an id that begins `hole:`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._chosen = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SOURCE

    def reader(self, schema: StructType) -> "RoutebookBatchReader":  # noqa: ARG002 the schema is ours
        return RoutebookBatchReader(self._chosen)

    def streamReader(self, schema: StructType) -> "RoutebookStreamReader":  # noqa: ARG002, N802 Spark's name
        return RoutebookStreamReader(self._chosen)


@dataclass
class StreamRange(InputPartition):
    """Behind `start`, up to and including `end`. Plain text: it travels."""

    start: str
    end: str


class _Ranges:
    """What both readers do: cut a range in partitions, read a partition."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._stream = self._open()

    def _open(self) -> StreamReader:
        return StreamReader(self.options.url_env, self.options.namespace, self.options.stream)

    def plan(self, start: EntryId, end: EntryId) -> list[StreamRange]:
        """Looks at the entry behind `start` before anybody reads: a whole range is named when it was trimmed, and no
        task is started in vain.
        """
        if start.version >= end.version:
            return []
        behind = self._stream.first_behind(start)
        if behind is not None and behind.version > start.version + 1 and not self.options.record_losses:
            last = min(behind.version - 1, end.version)
            raise HistoryMissingError(self.options.namespace, start.version + 1, last)
        ranges = cut(self._stream.first_at, start, end, self.options.entries_per_partition)
        return [StreamRange(str(first), str(last)) for first, last in ranges]

    def rows(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """On an executor, with a connection of its own. Spark makes up a partition for a batch that has none."""
        if not isinstance(partition, StreamRange):
            return
        how = ReadOptions(self.options.chunk, self.options.record_losses)
        with self._open() as stream:
            yield from read(stream, EntryId.parse(partition.start), EntryId.parse(partition.end), how)


class RoutebookBatchReader(_Ranges, DataSourceReader):
    """Behind `start_id` up to `end_id`; without: everything that is there."""

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


class RoutebookStreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"<stream key>": "<id of the last entry read>"}`: start exclusive, end inclusive. One key: Spark
    compares the text of offsets, and the same keys in another order would be new data.
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
        """The end is noted once, before the first batch."""
        self._target = self._stream.newest().id

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 Spark's name
        """HistoryForkError when the stream does not continue `start`."""
        place = self._place(start)
        newest = self._stream.newest().id
        self._stream.refuse_fork(place, newest)
        end = newest if self._target is None else min(newest, self._target)
        if end.version <= place.version:
            return start
        wanted = place.version + limit.max_rows if isinstance(limit, ReadMaxRows) else end.version
        if wanted < end.version:
            end = find_position(self._stream.first_at, wanted, place.ms, end.ms)
        return self._offset(end)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 Spark's name
        return self._offset(self._stream.newest().id)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [*self.plan(self._place(start), self._place(end))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self.rows(partition)

    def stop(self) -> None:
        self._stream.close()

    def _offset(self, place: EntryId) -> Offset:
        return {self._stream.key: str(place)}

    def _place(self, offset: Mapping[str, Any]) -> EntryId:
        return EntryId.parse(offset[self._stream.key])
