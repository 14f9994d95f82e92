"""Copies both streams of a namespace into its lake, once or continuously.

A continuous ingest gives up only when a restart cannot help: wrong usage, a history that is missing or another one, or
the end of Java. After any other error the query is restarted, after one second, then two, four, … up to a minute. A
committed batch resets the delay.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession

from routebook_pipeline.errors import HistoryError, WrongUsageError, unwrap_spark_error
from routebook_pipeline.lake.feeds import Feed, FeedEvent, FeedOptions, OnEvent
from routebook_pipeline.lake.tables import OBSERVED, Lake
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files
from routebook_pipeline.source.data_source import register
from routebook_pipeline.source.options import SourceOptions
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, PULSE, StreamReader

READER: Final = "pipeline"
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
MAX_PARTITION_ENTRIES: Final = 250_000
POLL_S: Final = 0.2
"""How often a query's state is checked: Spark does not report its end."""
FATAL_EXIT_CODES: Final = (WrongUsageError.exit_code, HistoryError.exit_code)


def ingest(
    spark: SparkSession,
    lake: Lake,
    *,
    once: bool,
    on_event: OnEvent,
    stop: threading.Event,
    trigger_s: float = 30,
    on_loss: str = "fail",
    starting: str = "lake",
    options: Mapping[str, str] | None = None,
    reader: str = READER,
) -> None:
    """Returns when the lake has everything that is in the streams now (`once`), or after the running batches when
    `stop` is set. Raises a PipelineError when it gives up.

    `starting` is used only if the lake is empty: `earliest` (or `lake`) or `latest`. `options` are for the source.
    """
    source = {"entries_per_partition": str(_entries_per_partition(spark)), **(options or {})}
    register(spark, source.get("url_env", DEFAULT_URL_ENV))
    changes = FeedOptions(source, on_loss, starting, reader, compacting=not once)
    # The heartbeat gaps may be trimmed before they are read, and no state depends on them: a loss is only recorded.
    pulse = FeedOptions(source, "record", starting, None, compacting=not once)
    feeds = [Feed(lake, CHANGES, changes, on_event, stop), Feed(lake, PULSE, pulse, on_event, stop)]
    try:
        if once:
            for feed in feeds:
                _run_once(spark, feed, stop)
        else:
            _run(spark, [SupervisedFeed(feed, on_event) for feed in feeds], trigger_s, stop)
    finally:
        for feed in feeds:
            feed.stop()


def _entries_per_partition(spark: SparkSession) -> int:
    """A full batch has one partition for each core. (Five partitions of 100,000 on two cores leave one core idle for a
    sixth of the time.) Smaller partitions would make small files, since each is a file.
    """
    per_core = math.ceil(SourceOptions.max_entries_per_trigger / spark.sparkContext.defaultParallelism)
    return min(max(per_core, SourceOptions.entries_per_partition), MAX_PARTITION_ENTRIES)


def _run_once(spark: SparkSession, feed: Feed, stop: threading.Event) -> None:
    if stop.is_set():
        return
    if feed.is_up_to_date():
        _record_observation(feed)
        return
    query = feed.start(spark, None)
    while query.isActive and not stop.wait(POLL_S):
        pass
    if stop.is_set():
        return
    error = feed.failure()
    if error is not None:
        raise error


def _record_observation(feed: Feed) -> None:
    """Records until when the stream had nothing new. Without a batch, no commit records it, and once there is a later
    change it cannot be found out any more. A continuous ingest does not do this, as it would commit at every trigger;
    its next batch records it.
    """
    pinned = feed.table.pin()
    with StreamReader(feed.options.url_env, feed.lake.namespace, feed.stream) as store:
        newest = store.newest()
    if pinned.stream_position == (newest.id.ms, newest.version):
        # A concurrent writer has read more, and recorded its own observation.
        with suppress(ConcurrentCommitError):
            commit_files(pinned, [], records={OBSERVED: newest.now_ms})


def _run(spark: SparkSession, supervised: list["SupervisedFeed"], trigger_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        for each in supervised:
            each.check(spark, trigger_s)
        stop.wait(POLL_S)


class SupervisedFeed:
    """Restarts a feed whose query failed, with exponential backoff."""

    def __init__(self, feed: Feed, on_event: OnEvent, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed, self._on_event, self._clock = feed, on_event, clock
        self._backoff_s = FIRST_BACKOFF_S
        self._batches = 0
        self._start_at = clock()
        self._has_failed = False

    def check(self, spark: SparkSession, trigger_s: float) -> None:
        query = self.feed.query
        if query is not None and query.isActive:
            return
        error = self.feed.failure()
        if query is not None and error is not None:
            self._schedule_restart(error)
        if self._clock() < self._start_at:
            return
        try:
            self.feed.start(spark, trigger_s)
        except Exception as failed:
            if not _is_java_running(spark):
                raise
            self._schedule_restart(failed)
            return
        if self._has_failed:
            # Without a change there is no batch, whose line would show the same.
            self._on_event(FeedEvent(self.feed.stream, "restarted"))
        self._has_failed = False

    def _schedule_restart(self, error: BaseException) -> None:
        known = unwrap_spark_error(error)
        if known is not None and known.exit_code in FATAL_EXIT_CODES:
            raise known
        if self.feed.batches > self._batches:
            self._batches, self._backoff_s = self.feed.batches, FIRST_BACKOFF_S
        self.feed.query, self._has_failed = None, True
        self._start_at = self._clock() + self._backoff_s
        reason = (str(known or error).strip() or type(error).__name__).splitlines()[0]
        self._on_event(FeedEvent(self.feed.stream, f"restarting in {self._backoff_s:g} s: {reason}"))
        self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)


def _is_java_running(spark: SparkSession) -> bool:
    """Java is a process of its own. Without it nothing can be restarted here, only by restarting this command."""
    try:
        spark.conf.get("spark.app.name")
    except Exception:
        return False
    return True
