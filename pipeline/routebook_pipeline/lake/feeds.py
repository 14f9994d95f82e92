"""One stream into one table: a streaming query whose every batch is committed, and only then told to the store."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from routebook_pipeline.errors import HistoryError, PipelineError, UnreachableError, told_by_spark
from routebook_pipeline.lake.attempts import OvertakenError, put
from routebook_pipeline.lake.checkpoints import Checkpoint, Checkpoints
from routebook_pipeline.lake.commit import Committed, Noted, commit
from routebook_pipeline.lake.compaction import compact
from routebook_pipeline.lake.connectors import check_spark_reaches
from routebook_pipeline.lake.kill_points import Point, reach
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Place, Table
from routebook_pipeline.source.data_source import NAME
from routebook_pipeline.source.options import LATEST
from routebook_pipeline.source.positions import EntryId
from routebook_pipeline.source.stream_store import CHANGES, DEFAULT_URL_ENV, StreamEnd, StreamReader

COMMITS_BETWEEN_COMPACTIONS: Final = 200


@dataclass(frozen=True)
class Progress:
    """Something that happened, for people; with the numbers, when a batch was committed."""

    stream: str
    text: str
    committed: Committed | None = None


Announce = Callable[[Progress], None]


class StoppedError(Exception):
    """A batch that was not begun any more."""


@dataclass(frozen=True)
class Habits:
    """How a stream is read."""

    options: Mapping[str, str]
    """The source's own, `url_env` among them; not those that say where to begin."""
    on_loss: str
    starting: str
    reader: str | None
    """Under this name the store keeps what we have not read yet; None for a stream that nobody holds back."""
    compacting: bool


class Feed:
    def __init__(self, lake: Lake, stream: str, habits: Habits, announce: Announce, stop: threading.Event) -> None:
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
        held = self.table.pin().stream_place
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
        return self._failure or told_by_spark(error) or error

    def _options(self) -> dict[str, str]:
        """Where to begin is the lake's business."""
        held = self.table.pin().stream_place
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
    def _place(self) -> Place:
        return self.table.pin().place or Place(0, 0)

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
            place = Place(0, end.version).ord
            records = {self.table.name: place, LAST_MS: end.id.ms, OBSERVED: end.now_ms}
            with suppress(OvertakenError):
                put(pinned, [], records=records)
        held = self.table.pin().stream_place
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
        held = self.table.pin().stream_place
        noted = self._store.newest()
        if held is not None:
            # The source compares its own place only, and who reads beside us may be further.
            self._store.refuse_fork(EntryId(*held), noted.id)
        end = None if self._checkpoint is None else self._checkpoint.end_of(number)
        done = commit(
            batch,
            self.table,
            ingested_ms=_safe_clock(noted, end),
            noted=Noted(noted.version, noted.now_ms),
            end=end,
            reached=lambda point: reach(point, number),
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
        held = self.table.pin().place
        if self.habits.reader is not None and held is not None:
            self._store.write_place(self.habits.reader, held.version)
        reach(Point.PLACE_PUBLISHED, number)


def _compacted(table: Table) -> str:
    """The batch is in the lake, whether its files can be joined or not."""
    try:
        done = compact(table)
    except UnreachableError as error:
        return f"files of closed days were not joined: {error}"
    return f"{done.joined} files of closed days joined into {done.into}"


def _safe_clock(noted: StreamEnd, end: EntryId | None) -> int:
    """No later entry has an earlier time than this, unless the store's clock steps back: the clock itself when nothing
    follows the batch, else the time of its last entry.
    """
    if end is None:
        return 0
    return noted.now_ms if noted.version == end.version else end.ms


def _sentence(done: Committed) -> str:
    words = [f"{done.entries} entries, up to version {done.last}"]
    words += [f"{done.holes} versions are missing"] if done.holes else []
    words += [f"{done.unreadable} are not readable"] if done.unreadable else []
    return ", ".join(words)
