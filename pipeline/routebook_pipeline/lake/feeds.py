"""One stream into one table: a streaming query whose every batch is committed, and only then told to the store."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from routebook_pipeline.errors import HistoryError, PipelineError, UnreachableError, told_by_spark
from routebook_pipeline.lake.attempts import OvertakenError, put
from routebook_pipeline.lake.commit import Committed, Noted, commit
from routebook_pipeline.lake.compaction import compact
from routebook_pipeline.lake.kill_points import Point, reach
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Place, Table
from routebook_pipeline.source.data_source import NAME
from routebook_pipeline.source.positions import EntryId
from routebook_pipeline.source.stream_store import CHANGES, DEFAULT_URL_ENV, StreamEnd, StreamReader

LATEST: Final = "latest"
FEW_ENTRIES: Final = 50_000
FILES_OF_FEW: Final = 4
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
        self._checkpoint = lake.checkpoint(stream)
        self._store = StreamReader(habits.options.get("url_env", DEFAULT_URL_ENV), lake.namespace, stream)

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
        reader = spark.readStream.format(NAME).options(**self._options())
        writer = reader.load().writeStream.foreachBatch(self._take).queryName(f"{self.lake.namespace}-{self.stream}")
        writer = writer.option("checkpointLocation", self._checkpoint.for_spark)
        if trigger_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        self.query = writer.start()
        return self.query

    def stop(self) -> None:
        """After the running batch."""
        with self._running:
            if self.query is not None:
                self.query.stop()
        self._store.close()

    def failure(self) -> BaseException | None:
        """Why the query ended; None when it did what it should, or was stopped."""
        error = self.query.exception() if self.query is not None else None
        if error is None or self._stop.is_set():
            return None
        return self._failure or told_by_spark(error) or error

    def _options(self) -> dict[str, str]:
        """Where to begin is the lake's business. A query with a checkpoint goes on from there, and what the lake holds
        already is left out of its batches.
        """
        held = self.table.pin().stream_place
        chosen = {
            **self.habits.options,
            "stream": self.stream,
            "namespace": self.lake.namespace,
            "on_loss": self.habits.on_loss,
        }
        if held is not None:
            return {**chosen, "start_id": str(EntryId(*held))}
        if self._checkpoint_has_entries():
            raise HistoryError(
                f"The lake at {self.lake.folder.uri} holds nothing of {self.table.name}, but a checkpoint says that "
                f"some was read: {self._checkpoint.uri}. Delete that folder (it is always safe), and start again."
            )
        if self.habits.starting == LATEST:
            return {**chosen, "start_id": str(self._begin_at_the_end())}
        return chosen

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

    def _checkpoint_has_entries(self) -> bool:
        """Spark's first batch is run, and noted, also when the stream was empty: version 0 is nothing read."""
        names = [file.path.rpartition("/")[2] for file in (self._checkpoint / "commits").files()]
        committed = [int(name) for name in names if name.isdecimal()]
        if not committed:
            return False
        end = self._end_of(max(committed))
        return end is None or end.version > 0

    def _take(self, batch: DataFrame, number: int) -> None:
        with self._running:
            if self._stop.is_set():
                raise StoppedError
            try:
                self._commit(batch, number)
            except PipelineError as error:
                # Spark hands on its text only.
                self._failure = error
                raise

    def _commit(self, batch: DataFrame, number: int) -> None:
        noted = self._store.newest()
        end = self._end_of(number)
        held = self.table.pin().place
        if end is not None and held is not None and end.version - held.version < FEW_ENTRIES:
            batch = batch.coalesce(FILES_OF_FEW)
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

    def _end_of(self, batch: int) -> EntryId | None:
        """Where the batch ends, as Spark noted before it began. No data frame says so before it is read."""
        text = self._checkpoint.text(f"offsets/{batch}")
        if text is None:
            return None
        offset: dict[str, str] = json.loads(text.splitlines()[-1])
        return EntryId.parse(offset[self._store.key])


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
