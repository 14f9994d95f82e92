"""`routebook pipeline ingest`"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.cli.options import (
    DURATION,
    PARTIAL,
    CommonOptions,
    refuse_flags,
    with_common_options,
    with_thresholds,
)
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import translate_error
from routebook_pipeline.history import DAY_MS, DEFAULTS, Thresholds
from routebook_pipeline.times import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.feeds import FeedEvent
    from routebook_pipeline.lake.tables import Lake

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_FAIR: Final = {"spark.scheduler.mode": "FAIR"}
"""Otherwise the tasks of a batch wait for all tasks of a refresh that were there before them."""
MIN_SHOWN_SPEED: Final = 100
"""Entries per second. A lower speed only shows that there was nothing to read for a while."""


@click.command("ingest", short_help="Read the change stream into the lake.")
@click.option("--once", is_flag=True, help="Read what is there now, then end.")
@click.option("--trigger", type=DURATION, default="30s", show_default=True, help="Time between the starts of batches.")
@click.option("--refresh", type=DURATION, default=None, help="How often to compute the stored answers of open days.")
@click.option(
    "--on-loss",
    type=click.Choice(["fail", "record"]),
    default="fail",
    show_default=True,
    help="If entries were trimmed before they were read: end with 4, or record a hole and continue.",
)
@click.option(
    "--starting",
    type=click.Choice(["lake", "earliest", "latest"]),
    default="lake",
    show_default=True,
    help="Where to start: where the lake ends. For an empty lake, at the earliest entry, or with `latest` at the next.",
)
@click.option(
    "--max-entries",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    metavar="NUMBER",
    help="Maximum number of entries in a batch. Use fewer if memory is short.",
)
@with_thresholds
@with_common_options
def command(
    common: CommonOptions,
    *,
    once: bool,
    trigger: float,
    refresh: float | None,
    on_loss: str,
    starting: str,
    max_entries: int,
    thresholds: Thresholds,
) -> int:
    """Read the change stream of the name service into the lake, each change exactly once.

    Without --once it runs until it gets SIGTERM or Ctrl-C; then it finishes the running batch. If the store is
    unreachable, it tries again. Ending it in any other way neither loses nor doubles a change.
    """
    if refresh is None:
        refuse_flags({"thresholds": "--threshold"}, "it is for the answers that --refresh computes. Add --refresh 5m.")
    if once:
        refuse_flags({"trigger": "--trigger"}, "--once ends after reading what is there, so no batch follows.")
    refuse_flags(PARTIAL, "it is for questions about a window. An ingest reads everything.")
    from routebook_pipeline.cli.spark import spark_session

    if once:
        check_store_answers(common)
    shared = {} if refresh is None else _FAIR
    with Progress() as progress, spark_session(common, progress, shared) as spark, stop_on_signals(progress) as stop:
        run_ingest(
            spark,
            common,
            progress,
            stop,
            once=once,
            trigger_s=trigger,
            refresh_s=refresh,
            on_loss=on_loss,
            starting=starting,
            max_entries=max_entries,
            thresholds=thresholds,
        )
    return 0


def check_store_answers(common: CommonOptions) -> None:
    """Reports an unreachable store before Spark starts."""
    from routebook_pipeline.source.stream import StreamReader

    with StreamReader(common.url_env, common.namespace) as stream:
        stream.newest()


@contextmanager
def stop_on_signals(progress: Progress) -> Iterator[threading.Event]:
    """Sets the event at the first SIGTERM or Ctrl-C; a second signal ends the program at once. That loses nothing: the
    batch is read again by the next ingest. To be entered after Spark has started, which installs a handler for SIGINT.
    """
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        progress.log(f"{signal.Signals(number).name}: ending after the running batch")

    previous = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run_ingest(
    spark: "SparkSession",
    common: CommonOptions,
    progress: Progress,
    stop: threading.Event,
    *,
    once: bool,
    trigger_s: float = 30,
    refresh_s: float | None = None,
    on_loss: str = "fail",
    starting: str = "lake",
    max_entries: int | None = None,
    thresholds: Thresholds = DEFAULTS,
) -> None:
    from routebook_pipeline.lake.ingest import ingest
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(common.lake, common.namespace)
    progress.show("reading new changes" if once else "waiting for changes")
    batch_log = BatchLog(progress)
    refresher = None if refresh_s is None else Refresher(spark, lake, common, progress, stop, refresh_s, thresholds)
    options = {"url_env": common.url_env}
    if max_entries is not None:
        options["max_entries_per_trigger"] = str(max_entries)

    def on_event(event: "FeedEvent") -> None:
        batch_log.write(event)
        if refresher is not None and event.committed is not None:
            refresher.refresh_if_due()

    ingest(
        spark,
        lake,
        once=once,
        on_event=on_event,
        stop=stop,
        trigger_s=trigger_s,
        on_loss=on_loss,
        starting=starting,
        options=options,
    )
    if refresher is not None:
        refresher.finish()


class BatchLog:
    """Writes a line for each batch, with its speed."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._last_s = time.monotonic()

    def write(self, event: "FeedEvent") -> None:
        now_s = time.monotonic()
        per_second = event.committed.entries / max(now_s - self._last_s, 0.001) if event.committed is not None else 0
        speed = f" ({per_second:.0f} entries/s)" if per_second >= MIN_SHOWN_SPEED else ""
        self._last_s = now_s
        self.progress.log(f"{iso(time.time_ns() // 1_000_000)} {event.stream}: {event.text}{speed}")


@dataclass
class Refresher:
    """Computes the stored answers of open days at intervals, in a thread of its own: batches do not wait for it."""

    spark: "SparkSession"
    lake: "Lake"
    common: CommonOptions
    progress: Progress
    stop: threading.Event
    period_s: float
    thresholds: Thresholds = DEFAULTS
    _last_s: float = field(default_factory=time.monotonic)
    _thread: threading.Thread | None = None

    def refresh_if_due(self) -> None:
        is_running = self._thread is not None and self._thread.is_alive()
        if is_running or time.monotonic() < self._last_s + self.period_s:
            return
        self._thread = threading.Thread(target=self.refresh, name="refresh", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Waits for a running refresh, which ends after its present answer if the ingest is to stop. Otherwise
        refreshes once more, for the last batch.
        """
        if self._thread is not None:
            self._thread.join()
        if not self.stop.is_set():
            self.refresh()

    def refresh(self) -> None:
        """A failure is logged, and the next refresh tries again; the ingest continues."""
        try:
            self._refresh()
        finally:
            self._last_s = time.monotonic()

    def _refresh(self) -> None:
        from routebook_pipeline.answers.computation import history_extent
        from routebook_pipeline.answers.daily import days_between, refresh

        # A pool of its own, which shares the cores fairly with that of the batches.
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "refresh")
        try:
            extent = history_extent(self.lake, self.common.url_env)
            # The day before too: its last entries may have come since.
            days = days_between(extent.complete_until_ms - DAY_MS, extent.complete_until_ms)
            computed = refresh(
                self.spark,
                self.lake,
                extent,
                days,
                thresholds=self.thresholds,
                report_progress=self.progress.show,
                should_stop=self.stop.is_set,
            )
            self.progress.log(f"{computed} stored answers refreshed, complete until {iso(extent.complete_until_ms)}")
        except Exception as error:
            known = translate_error(error)
            if known is None:
                raise
            self.progress.log(f"The stored answers could not be refreshed: {known}")
