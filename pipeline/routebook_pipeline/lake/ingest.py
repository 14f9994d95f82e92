"""Both streams of a namespace into its lake, once or for as long as it is let.

An endless ingest gives up only where starting again cannot help: wrong usage, a history that is missing or another one,
and a Java that is gone. Everything else is started again, after one second, then two, four, … up to a minute; a
committed batch forgives.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession

from routebook_pipeline.errors import HistoryError, WrongUsageError, unwrap_spark_error
from routebook_pipeline.lake.feeds import Announce, Feed, FeedOptions, Progress
from routebook_pipeline.lake.tables import OBSERVED, Lake
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files
from routebook_pipeline.source.data_source import register
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, PULSE, StreamReader

READER: Final = "pipeline"
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
LARGEST_PART: Final = 250_000
LOOK_S: Final = 0.2
"""How often a query is looked at: it tells nobody that it ended."""
GIVING_UP: Final = (WrongUsageError.exit_code, HistoryError.exit_code)


def ingest(
    spark: SparkSession,
    lake: Lake,
    *,
    once: bool,
    announce: Announce,
    stop: threading.Event,
    trigger_s: float = 30,
    on_loss: str = "fail",
    starting: str = "lake",
    options: Mapping[str, str] | None = None,
    reader: str = READER,
) -> None:
    """Returns when everything that is there now is in the lake (`once`), or when `stop` is set, after the running
    batches. Raises a PipelineError when it gives up.

    `starting` counts for a lake that holds nothing yet: `earliest` (also `lake`) or `latest`. `options`: of the source.
    """
    chosen = {"entries_per_partition": str(_in_parts(spark)), **(options or {})}
    register(spark, chosen.get("url_env", DEFAULT_URL_ENV))
    changes = FeedOptions(chosen, on_loss, starting, reader, compacting=not once)
    # Nobody holds the pulse back from being trimmed, and no state depends on it: what is lost there is noted.
    pulse = FeedOptions(chosen, "record", starting, None, compacting=not once)
    feeds = [Feed(lake, CHANGES, changes, announce, stop), Feed(lake, PULSE, pulse, announce, stop)]
    try:
        if once:
            for feed in feeds:
                _run_once(spark, feed, stop)
        else:
            _run(spark, [Supervised(feed, announce) for feed in feeds], trigger_s, stop)
    finally:
        for feed in feeds:
            feed.stop()


def _in_parts(spark: SparkSession) -> int:
    """A part for each core of what a batch takes at most: of five parts of 100,000 on two cores, the last one leaves a
    core idle for a sixth of the time. Not below that, since each part is a file.
    """
    a_core = math.ceil(SourceOptions.max_entries_per_trigger / spark.sparkContext.defaultParallelism)
    return min(max(a_core, SourceOptions.entries_per_partition), LARGEST_PART)


def _run_once(spark: SparkSession, feed: Feed, stop: threading.Event) -> None:
    if stop.is_set():
        return
    if feed.nothing_new():
        _note_that(feed)
        return
    query = feed.start(spark, None)
    while query.isActive and not stop.wait(LOOK_S):
        pass
    if stop.is_set():
        return
    error = feed.failure()
    if error is not None:
        raise error


def _note_that(feed: Feed) -> None:
    """Until when nothing followed: there is no batch to tell it, and once there is a change that the lake has not,
    nobody can. An endless ingest does without, for it would be a commit each trigger, and the next batch tells.
    """
    pinned = feed.table.pin()
    with StreamReader(feed.habits.options.get("url_env", DEFAULT_URL_ENV), feed.lake.namespace, feed.stream) as store:
        newest = store.newest()
    if pinned.stream_position == (newest.id.ms, newest.version):
        # Who overtakes has read more, and told until when.
        with suppress(ConcurrentCommitError):
            commit_files(pinned, [], records={OBSERVED: newest.now_ms})


def _run(spark: SparkSession, supervised: list["Supervised"], trigger_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        for each in supervised:
            each.look(spark, trigger_s)
        stop.wait(LOOK_S)


class Supervised:
    """A feed that is started again."""

    def __init__(self, feed: Feed, announce: Announce, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed, self._announce, self._clock = feed, announce, clock
        self._pause_s = FIRST_PAUSE_S
        self._batches = 0
        self._start_at = clock()

    def look(self, spark: SparkSession, trigger_s: float) -> None:
        query = self.feed.query
        if query is not None and query.isActive:
            return
        error = self.feed.failure()
        if query is not None and error is not None:
            self._fall(error)
        if self._clock() < self._start_at:
            return
        try:
            self.feed.start(spark, trigger_s)
        except Exception as failed:
            if not _lives(spark):
                raise
            self._fall(failed)

    def _fall(self, error: BaseException) -> None:
        told = unwrap_spark_error(error)
        if told is not None and told.exit_code in GIVING_UP:
            raise told
        if self.feed.batches > self._batches:
            self._batches, self._pause_s = self.feed.batches, FIRST_PAUSE_S
        self.feed.query = None
        self._start_at = self._clock() + self._pause_s
        words = str(told or error).strip() or type(error).__name__
        self._announce(Progress(self.feed.stream, f"starting again in {self._pause_s:g} s: {words.splitlines()[0]}"))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _lives(spark: SparkSession) -> bool:
    """Java is a process of its own. When it is gone, nothing can be started again from here: whoever started us can."""
    try:
        return not spark._jsc.sc().isStopped()
    except Exception:
        return False
