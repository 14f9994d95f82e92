"""Spark's own notes of its queries, one folder a start.

No query goes on from another's: each begins where the lake is. A checkpoint that is older than the lake would ask for
what may be trimmed by now, one of a history that ended for what never was, and two processes would fight over one. What
earlier ones noted is looked at for one thing only: none may be ahead of the lake.

One stream into one table: a streaming query whose every batch is committed, and only then told to the store.
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

KEPT_MS: Final = 24 * 3_600_000
"""Since its last note. Who notes nothing for longer, and yet runs, starts again when something comes."""
_NAME: Final = r"(?P<name>\d+-[0-9a-f]{16})"
_COMMITTED: Final = re.compile(rf"{_NAME}/commits/(?P<batch>\d+)")
_OVER: Final = "over"
"""Name of an empty file: the query has ended."""
_ENDED: Final = re.compile(f"{_NAME}/{_OVER}")


@dataclass(frozen=True)
class Checkpoint:
    folder: Folder
    key: str
    """Of the stream, in Spark's notes."""

    def end_of(self, batch: int) -> EntryId | None:
        """As Spark noted it before the batch began. No data frame says so before it is read."""
        text = self.folder.text(f"offsets/{batch}")
        if text is None:
            return None
        offset: dict[str, str] = json.loads(text.splitlines()[-1])
        return EntryId.parse(offset[self.key])


@dataclass(frozen=True)
class Checkpoints:
    """Of one stream. All of them may be deleted at any time. Their names say in which era of the lake they began."""

    folder: Folder
    key: str

    def new(self, era: int) -> Checkpoint:
        return Checkpoint(self.folder / f"{era}-{secrets.token_hex(8)}", self.key)

    def furthest(self, era: int) -> EntryId | None:
        """How far any of them says that the lake has come. Version 0: the stream was empty."""
        ends = self._ends(self.folder.files())
        return max((end for name, end in ends.items() if _era(name) == era), key=lambda end: end.version, default=None)

    def close(self, own: Checkpoint) -> None:
        """Its query has ended. That is known of nobody else's, so each process says it of its own."""
        own.folder.mark(_OVER)
        self.drop_ended()

    def drop_ended(self) -> None:
        """Among those that ended, only the furthest tells `furthest` anything; by name, where two came as far: whoever
        does this at the same time keeps the same one.
        """
        files = self.folder.files()
        over = [found["name"] for file in files if (found := _ENDED.fullmatch(file.path))]
        ends = self._ends(files)
        reached = {name: (_era(name), ends[name].version if name in ends else -1, name) for name in over}
        for name in sorted(over, key=lambda name: reached[name])[:-1]:
            (self.folder / name).remove()

    def _ends(self, files: list[FoundFile]) -> dict[str, EntryId]:
        """By name. Not of those that nothing was committed of."""
        last: dict[str, int] = defaultdict(int)
        for file in files:
            found = _COMMITTED.fullmatch(file.path)
            if found is not None:
                last[found["name"]] = max(last[found["name"]], int(found["batch"]))
        ends = {name: Checkpoint(self.folder / name, self.key).end_of(batch) for name, batch in last.items()}
        return {name: end for name, end in ends.items() if end is not None}

    def tidy(self) -> None:
        """Removes those of processes that ended."""
        newest: dict[str, int] = defaultdict(int)
        for file in self.folder.files():
            name, in_a_folder, _ = file.path.partition("/")
            # Files right here are those of releases with one checkpoint for all starts.
            if in_a_folder:
                newest[name] = max(newest[name], file.modified_ms)
        for name, noted_ms in newest.items():
            if noted_ms < time.time_ns() // 1_000_000 - KEPT_MS:
                (self.folder / name).remove()


def _era(name: str) -> int:
    return int(name.partition("-")[0])


COMMITS_BETWEEN_COMPACTIONS: Final = 200


@dataclass(frozen=True)
class Progress:
    """Something that happened, for people; with the numbers, when a batch was committed."""

    stream: str
    text: str
    committed: CommittedBatch | None = None


Announce = Callable[[Progress], None]


class StoppedError(Exception):
    """A batch that was not begun any more."""


@dataclass(frozen=True)
class FeedOptions:
    """How a stream is read."""

    options: Mapping[str, str]
    """The source's own, `url_env` among them; not those that say where to begin."""
    on_loss: str
    starting: str
    reader: str | None
    """Under this name the store keeps what we have not read yet; None for a stream that nobody holds back."""
    compacting: bool


class Feed:
    def __init__(self, lake: Lake, stream: str, habits: FeedOptions, announce: Announce, stop: threading.Event) -> None:
        self.lake, self.stream, self.habits = lake, stream, habits
        self.table: Table = lake.changes if stream == CHANGES else lake.pulses
        self.query: StreamingQuery | None = None
        self.batches = 0
        """Committed since the start of this process."""
        self._announce, self._stop = announce, stop
        self._failure: PipelineError | None = None
        self._running = threading.Lock()
        self._stopped = False
        self._store = StreamReader(habits.options.get("url_env", DEFAULT_URL_ENV), lake.namespace, stream)
        self._checkpoints = Checkpoints(lake.checkpoints(stream), self._store.key)
        self._checkpoint: Checkpoint | None = None

    def nothing_new(self) -> bool:
        """Whether the stream ends where the lake does. A query takes seconds to find that out."""
        self.table.make()
        newest = self._store.newest().id
        held = self.table.pin().stream_position
        return newest.version == 0 if held is None else newest == EntryId(*held)

    def start(self, spark: SparkSession, trigger_s: float | None) -> StreamingQuery:
        """Every so many seconds; without, what is there now in as many batches as it takes."""
        self._failure = None
        self.table.make()
        self._refuse_what_is_ahead()
        reader = spark.readStream.format(NAME).options(**self._options())
        checkpoint = self._begin_checkpoint()
        check_spark_reaches(spark, checkpoint.folder)
        writer = reader.load().writeStream.foreachBatch(self._take).queryName(f"{self.lake.namespace}-{self.stream}")
        writer = writer.option("checkpointLocation", checkpoint.folder.for_spark)
        if trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        self.query = writer.start()
        return self.query

    def stop(self) -> None:
        """After the running batch."""
        with self._running:
            self._stopped = True
        # Not within: Spark waits for its thread, which may be just about to hand over a batch.
        if self.query is not None:
            self.query.stop()
        if self._checkpoint is not None:
            # What is not tidied away now goes after a day.
            with suppress(UnreachableError):
                self._checkpoints.close(self._checkpoint)
        self._store.close()

    def failure(self) -> BaseException | None:
        """Why the query ended; None when it did what it should, or was stopped."""
        error = self.query.exception() if self.query is not None else None
        if error is None or self._stop.is_set():
            return None
        return self._failure or unwrap_spark_error(error) or error

    def _options(self) -> dict[str, str]:
        """Where to begin is the lake's business."""
        held = self.table.pin().stream_position
        chosen = {
            **self.habits.options,
            "stream": self.stream,
            "namespace": self.lake.namespace,
            "on_loss": self.habits.on_loss,
        }
        if held is not None:
            return {**chosen, "start_id": str(EntryId(*held))}
        if self.habits.starting == LATEST:
            return {**chosen, "start_id": str(self._begin_at_the_end())}
        return chosen

    def _refuse_what_is_ahead(self) -> None:
        """The lake came from a backup, or a table was removed: somebody should know before it is filled again with what
        the stream still has.
        """
        # In this order: who reads beside us moves the lake first.
        furthest = self._checkpoints.furthest(self._place.era)
        version = self._place.version
        if furthest is not None and furthest.version > version:
            raise HistoryError(
                f"The lake at {self.lake.folder.uri} holds {self.table.name} up to version {version}, but a checkpoint "
                f"says that everything up to {furthest.version} was read: did the lake come from a backup? Delete the "
                f"folder {self._checkpoints.folder.uri} (it is always safe), and start again: the lake is filled from "
                "its own place."
            )

    @property
    def _place(self) -> Position:
        return self.table.pin().position or Position(0, 0)

    def _begin_checkpoint(self) -> Checkpoint:
        if self._checkpoint is not None:
            self._checkpoint.folder.remove()
        self._checkpoints.tidy()
        self._checkpoint = self._checkpoints.new(self._place.era)
        return self._checkpoint

    def _begin_at_the_end(self) -> EntryId:
        """Recorded in the lake at once: else a quiet stream would be begun at another end when started again."""
        end = self._store.newest()
        pinned = self.table.pin()
        if end.version > 0:
            place = Position(0, end.version).ord
            records = {self.table.name: place, LAST_MS: end.id.ms, OBSERVED: end.now_ms}
            with suppress(ConcurrentCommitError):
                commit_files(pinned, [], records=records)
        held = self.table.pin().stream_position
        return end.id if held is None else EntryId(*held)

    def _take(self, batch: DataFrame, number: int) -> None:
        with self._running:
            if self._stopped or self._stop.is_set():
                raise StoppedError
            try:
                self._commit(batch, number)
            except PipelineError as error:
                # Spark hands on its text only.
                self._failure = error
                raise

    def _commit(self, batch: DataFrame, number: int) -> None:
        held = self.table.pin().stream_position
        stream_end = self._store.newest()
        if held is not None:
            # The source compares its own place only, and who reads beside us may be further.
            self._store.refuse_fork(EntryId(*held), stream_end.id)
        end = None if self._checkpoint is None else self._checkpoint.end_of(number)
        done = commit(
            batch,
            self.table,
            ingested_ms=_safe_clock(stream_end, end),
            stream_end=stream_end,
            end=end,
            reached=lambda point: kill_at(point, number),
        )
        self._publish(number)
        if done is None:
            self._announce(Progress(self.stream, "the lake holds this batch already"))
            return
        self.batches += 1
        self._announce(Progress(self.stream, _sentence(done), done))
        if self.habits.compacting and self.batches % COMMITS_BETWEEN_COMPACTIONS == 0:
            self._announce(Progress(self.stream, _compacted(self.table)))

    def _publish(self, number: int) -> None:
        """Only now may the store throw these entries away."""
        held = self.table.pin().position
        if self.habits.reader is not None and held is not None:
            self._store.write_reader_position(self.habits.reader, held.version)
        kill_at(KillPoint.PLACE_PUBLISHED, number)


def _compacted(table: Table) -> str:
    """The batch is in the lake, whether its files can be joined or not."""
    try:
        done = compact_table(table)
    except UnreachableError as error:
        return f"files of closed days were not joined: {error}"
    return f"{done.joined} files of closed days joined into {done.into}"


def _safe_clock(stream_end: StreamEnd, end: EntryId | None) -> int:
    """No later entry has an earlier time than this, unless the store's clock steps back: the clock itself when nothing
    follows the batch, else the time of its last entry.
    """
    if end is None:
        return 0
    return stream_end.now_ms if stream_end.version == end.version else end.ms


def _sentence(done: CommittedBatch) -> str:
    words = [f"{done.entries} entries, up to version {done.last}"]
    words += [f"{done.holes} versions are missing"] if done.holes else []
    words += [f"{done.unreadable} are not readable"] if done.unreadable else []
    return ", ".join(words)
