"""Copies one stream into its table: a streaming query, each of whose batches is committed, then reported to the store.

Each start of a query has a checkpoint folder of its own, and continues from the lake, never from another checkpoint. An
old checkpoint could name entries that have been trimmed, or entries of a history that ended; and two processes would
overwrite a shared one. Earlier checkpoints have one use: if one of them is ahead of the lake, the lake lost data.
"""

import json
import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from routebook_pipeline.errors import HistoryError, PipelineError, UnreachableError, unwrap_spark_error
from routebook_pipeline.lake.commit import CommittedBatch, KillPoint, commit, kill_at
from routebook_pipeline.lake.folders import Folder, FoundFile, check_spark_reaches
from routebook_pipeline.lake.maintenance import compact_table
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files
from routebook_pipeline.source.data_source import NAME
from routebook_pipeline.source.options import LATEST
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, EntryId, StreamEnd, StreamReader

CHECKPOINT_KEPT_MS: Final = 24 * 3_600_000
"""A checkpoint is removed this long after its last write. If its query is still running, it is restarted at its next
batch.
"""
COMMITS_BETWEEN_COMPACTIONS: Final = 200

_NAME: Final = r"(?P<name>\d+-[0-9a-f]{16})"
_COMMITTED: Final = re.compile(rf"{_NAME}/commits/(?P<batch>\d+)")
_ENDED_MARK: Final = "over"
"""Name of an empty file in the checkpoint of a query that has ended."""
_ENDED: Final = re.compile(f"{_NAME}/{_ENDED_MARK}")


@dataclass(frozen=True)
class Checkpoint:
    folder: Folder
    key: str
    """The stream's key in Spark's offsets."""

    def end_of(self, batch: int) -> EntryId | None:
        """The end of a batch, which Spark writes down before the batch begins. (A data frame does not have it until it
        has been read.)
        """
        text = self.folder.text(f"offsets/{batch}")
        if text is None:
            return None
        offset: dict[str, str] = json.loads(text.splitlines()[-1])
        return EntryId.parse(offset[self.key])


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one stream; all of them may be deleted at any time. A checkpoint's name begins with the era in
    which its query started.
    """

    folder: Folder
    key: str

    def new(self, era: int) -> Checkpoint:
        return Checkpoint(self.folder / f"{era}-{secrets.token_hex(8)}", self.key)

    def furthest(self, era: int) -> EntryId | None:
        """The furthest committed position in the checkpoints of an era. Version 0: the stream was empty."""
        ends = self._ends(self.folder.files())
        return max((end for name, end in ends.items() if _era(name) == era), key=lambda end: end.version, default=None)

    def close(self, own: Checkpoint) -> None:
        """Marks the checkpoint as ended. Only the process that ran its query knows that."""
        own.folder.touch(_ENDED_MARK)
        self.remove_ended()

    def remove_ended(self) -> None:
        """Removes all ended checkpoints except the furthest; `furthest` needs no other. If two are equally far, their
        names decide, so that concurrent processes keep the same one.
        """
        files = self.folder.files()
        ended = [found["name"] for file in files if (found := _ENDED.fullmatch(file.path))]
        ends = self._ends(files)
        order = {name: (_era(name), ends[name].version if name in ends else -1, name) for name in ended}
        for name in sorted(ended, key=lambda name: order[name])[:-1]:
            (self.folder / name).remove()

    def remove_old(self) -> None:
        """Removes the checkpoints of processes that must have ended."""
        newest: dict[str, int] = defaultdict(int)
        for file in self.folder.files():
            name, in_a_folder, _ = file.path.partition("/")
            # Files directly in the folder are from releases that had one checkpoint for all starts.
            if in_a_folder:
                newest[name] = max(newest[name], file.modified_ms)
        for name, written_ms in newest.items():
            if written_ms < time.time_ns() // 1_000_000 - CHECKPOINT_KEPT_MS:
                (self.folder / name).remove()

    def _ends(self, files: list[FoundFile]) -> dict[str, EntryId]:
        """The end of the last committed batch of each checkpoint that has one."""
        last: dict[str, int] = defaultdict(int)
        for file in files:
            found = _COMMITTED.fullmatch(file.path)
            if found is not None:
                last[found["name"]] = max(last[found["name"]], int(found["batch"]))
        ends = {name: Checkpoint(self.folder / name, self.key).end_of(batch) for name, batch in last.items()}
        return {name: end for name, end in ends.items() if end is not None}


def _era(name: str) -> int:
    return int(name.partition("-")[0])


@dataclass(frozen=True)
class FeedEvent:
    """Something to show to the operator; with the numbers, if a batch was committed."""

    stream: str
    text: str
    committed: CommittedBatch | None = None


OnEvent = Callable[[FeedEvent], None]


class StoppedError(Exception):
    """Ends a query: a stop was requested before its next batch."""


@dataclass(frozen=True)
class FeedOptions:
    source: Mapping[str, str]
    """Options of the source, such as `url_env`, but not where to start."""
    on_loss: str
    starting: str
    reader: str | None
    """The name under which the store records our position, so that the service does not trim what we have not read.
    None for a stream that may be trimmed at any time.
    """
    compacting: bool

    @property
    def url_env(self) -> str:
        return self.source.get("url_env", DEFAULT_URL_ENV)


class Feed:
    def __init__(self, lake: Lake, stream: str, options: FeedOptions, on_event: OnEvent, stop: threading.Event) -> None:
        self.lake, self.stream, self.options = lake, stream, options
        self.table: Table = lake.changes if stream == CHANGES else lake.pulses
        self.query: StreamingQuery | None = None
        self.batches = 0
        """Committed since this process started."""
        self._on_event, self._stop = on_event, stop
        self._failure: PipelineError | None = None
        self._running = threading.Lock()
        self._stopped = False
        self._store = StreamReader(options.url_env, lake.namespace, stream)
        self._checkpoints = Checkpoints(lake.checkpoints(stream), self._store.key)
        self._checkpoint: Checkpoint | None = None

    def is_up_to_date(self) -> bool:
        """Whether the lake has the whole stream. A query would take seconds to find out."""
        self.table.create()
        newest = self._store.newest().id
        held = self.table.pin().stream_position
        return newest.version == 0 if held is None else newest == EntryId(*held)

    def start(self, spark: SparkSession, trigger_s: float | None) -> StreamingQuery:
        """Starts a query with a batch every `trigger_s` seconds; without it, one that reads what is there now, in as
        many batches as necessary, and ends.
        """
        self._failure = None
        self.table.create()
        self._refuse_lake_with_losses()
        reader = spark.readStream.format(NAME).options(**self._source_options())
        checkpoint = self._new_checkpoint()
        check_spark_reaches(spark, checkpoint.folder)
        writer = reader.load().writeStream.foreachBatch(self._process).queryName(f"{self.lake.namespace}-{self.stream}")
        writer = writer.option("checkpointLocation", checkpoint.folder.for_spark)
        if trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        self.query = writer.start()
        return self.query

    def stop(self) -> None:
        """Waits for the running batch."""
        with self._running:
            self._stopped = True
        # Without the lock: Spark waits for its thread, which may be about to call `_process`.
        if self.query is not None:
            self.query.stop()
        if self._checkpoint is not None:
            # A checkpoint that is not removed now is removed after a day.
            with suppress(UnreachableError):
                self._checkpoints.close(self._checkpoint)
        self._store.close()

    def failure(self) -> BaseException | None:
        """Why the query failed; None when it ended normally or was stopped."""
        error = self.query.exception() if self.query is not None else None
        if error is None or self._stop.is_set():
            return None
        return self._failure or unwrap_spark_error(error) or error

    def _source_options(self) -> dict[str, str]:
        """The lake decides where to start, if it has anything."""
        pinned = self.table.pin()
        held = pinned.stream_position
        options = {
            **self.options.source,
            "stream": self.stream,
            "namespace": self.lake.namespace,
            "on_loss": self.options.on_loss,
            "decoded": "true",
        }
        if held is not None:
            # Before any loss is reported or recorded: another history is no loss of this one.
            self._store.refuse_fork(EntryId(*held), self._store.newest().id, history=pinned.history)
            return {**options, "start_id": str(EntryId(*held))}
        if self.options.starting == LATEST:
            return {**options, "start_id": str(self._start_at_the_end())}
        return options

    def _refuse_lake_with_losses(self) -> None:
        """The lake was restored from a backup, or a table was deleted. The operator should know before the lake is
        filled with only what the stream still has.
        """
        # In this order: another process that ingests too moves the lake first, then its checkpoint.
        furthest = self._checkpoints.furthest(self._position.era)
        version = self._position.version
        if furthest is not None and furthest.version > version:
            raise HistoryError(
                f"The lake at {self.lake.folder.uri} holds {self.table.name} up to version {version}, but a checkpoint "
                f"says that everything up to {furthest.version} was read. Was the lake restored from a backup? Delete "
                f"the folder {self._checkpoints.folder.uri}, which is always safe, and start again: reading continues "
                "where the lake ends."
            )

    @property
    def _position(self) -> Position:
        return self.table.pin().position or Position(0, 0)

    def _new_checkpoint(self) -> Checkpoint:
        if self._checkpoint is not None:
            self._checkpoint.folder.remove()
        self._checkpoints.remove_old()
        self._checkpoint = self._checkpoints.new(self._position.era)
        return self._checkpoint

    def _start_at_the_end(self) -> EntryId:
        """Records the end in the lake at once. Otherwise, after a restart without any batch, the start would be later
        than the first one.
        """
        end = self._store.newest()
        pinned = self.table.pin()
        if end.version > 0:
            records = {self.table.name: Position(0, end.version).ord, LAST_MS: end.id.ms, OBSERVED: end.now_ms}
            with suppress(ConcurrentCommitError):
                commit_files(pinned, [], records=records)
        held = self.table.pin().stream_position
        return end.id if held is None else EntryId(*held)

    def _process(self, batch: DataFrame, number: int) -> None:
        with self._running:
            if self._stopped or self._stop.is_set():
                raise StoppedError
            try:
                self._commit(batch, number)
            except PipelineError as error:
                # Spark passes on only its text.
                self._failure = error
                raise

    def _commit(self, batch: DataFrame, number: int) -> None:
        pinned = self.table.pin()
        held, history = pinned.stream_position, self._store.history()
        stream_end = self._store.newest()
        if held is not None:
            # The source checks only its own position, and another process may have moved the lake further.
            self._store.refuse_fork(EntryId(*held), stream_end.id, history=pinned.history)
        end = None if self._checkpoint is None else self._checkpoint.end_of(number)
        committed = commit(
            batch,
            self.table,
            ingested_ms=_ingested_ms(stream_end, end),
            stream_end=stream_end,
            end=end,
            history=history,
            reached=lambda point: kill_at(point, number),
        )
        self._publish_position(number)
        if committed is None:
            # Before the first change there is an empty batch.
            text = "the stream has no entries yet" if held is None else "the lake already has this batch"
            self._on_event(FeedEvent(self.stream, text))
            return
        self.batches += 1
        self._on_event(FeedEvent(self.stream, _describe(committed), committed))
        if self.options.compacting and self.batches % COMMITS_BETWEEN_COMPACTIONS == 0:
            self._on_event(FeedEvent(self.stream, _compact(self.table)))

    def _publish_position(self, number: int) -> None:
        """After the commit: from now on the service may trim these entries."""
        held = self.table.pin().position
        if self.options.reader is not None and held is not None:
            self._store.write_reader_position(self.options.reader, held.version)
        kill_at(KillPoint.POSITION_PUBLISHED, number)


def _compact(table: Table) -> str:
    """A failure does not fail the batch, which is committed."""
    try:
        done = compact_table(table)
    except UnreachableError as error:
        return f"files of closed days were not joined: {error}"
    return f"{done.joined} files of closed days joined into {done.into}"


def _ingested_ms(stream_end: StreamEnd, end: EntryId | None) -> int:
    """A time that no later entry is before, unless the store's clock is set back: the store's clock if the batch ends
    with the stream, else the time of its last entry.
    """
    if end is None:
        return 0
    return stream_end.now_ms if stream_end.version == end.version else end.ms


def _describe(batch: CommittedBatch) -> str:
    parts = [f"{batch.entries} entries, up to version {batch.last}"]
    parts += [f"{batch.holes} versions are missing"] if batch.holes else []
    parts += [f"{batch.unreadable} are not readable"] if batch.unreadable else []
    return ", ".join(parts)
