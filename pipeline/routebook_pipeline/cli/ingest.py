"""The wires between `ingest` and the lake: what is told, and the kept answers that are made again between batches.

SIGTERM and Ctrl-C of a run without end: the running batch is finished, then it ends in peace.

`routebook pipeline ingest`
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.cli.options import DURATION, PARTIAL, Site, refuse, with_site, with_thresholds
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import translate_error
from routebook_pipeline.history import DAY_MS, DEFAULTS, Thresholds
from routebook_pipeline.times import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.feeds import FeedEvent
    from routebook_pipeline.lake.tables import Lake


def ask_store(site: Site) -> None:
    """Before Spark is started: a store that does not answer is said at once."""
    from routebook_pipeline.source.stream import StreamReader

    with StreamReader(site.url_env, site.namespace) as stream:
        stream.newest()


def ingest_into(
    spark: "SparkSession",
    site: Site,
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

    lake = Lake(site.lake, site.namespace)
    progress.doing("reading what is new" if once else "waiting for changes")
    logbook = Logbook(progress)
    refresher = None if refresh_s is None else Refresher(spark, lake, site, progress, stop, refresh_s, thresholds)
    options = {"url_env": site.url_env}
    if max_entries is not None:
        options["max_entries_per_trigger"] = str(max_entries)

    def on_event(told: "FeedEvent") -> None:
        logbook.write(told)
        if refresher is not None and told.committed is not None:
            refresher.look()

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
    if refresher is not None and not stop.is_set():
        refresher.refresh()


WORTH_TELLING: Final = 100
"""Entries a second. Below, it only tells how long there was nothing to read."""


class Logbook:
    """One line a batch, with its speed."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._since = time.monotonic()

    def write(self, told: "FeedEvent") -> None:
        now = time.monotonic()
        per_second = told.committed.entries / max(now - self._since, 0.001) if told.committed is not None else 0
        speed = f" ({per_second:.0f} entries/s)" if per_second >= WORTH_TELLING else ""
        self._since = now
        self.progress.log(f"{iso(time.time_ns() // 1_000_000)} {told.stream}: {told.text}{speed}")


@dataclass
class Refresher:
    """Makes the kept answers of open days again when it is time, in the thread of the batch that has just ended: so the
    next one waits, and both do not fight for the same cores.
    """

    spark: "SparkSession"
    lake: "Lake"
    site: Site
    progress: Progress
    stop: threading.Event
    period_s: float
    thresholds: Thresholds = DEFAULTS
    _last: float = field(default_factory=time.monotonic)
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> None:
        if time.monotonic() < self._last + self.period_s or not self._busy.acquire(blocking=False):
            return
        try:
            self.refresh()
        finally:
            self._last = time.monotonic()
            self._busy.release()

    def refresh(self) -> None:
        """A refresh that fails is told and tried again; the history goes on being read."""
        from routebook_pipeline.answers.computation import history_extent
        from routebook_pipeline.answers.daily import days_between, refresh

        try:
            extent = history_extent(self.lake, self.site.url_env)
            # The day before, too: its last entries may have come since.
            days = days_between(extent.complete_until_ms - DAY_MS, extent.complete_until_ms)
            made = refresh(
                self.spark,
                self.lake,
                extent,
                days,
                thresholds=self.thresholds,
                report_progress=self.progress.doing,
                should_stop=self.stop.is_set,
            )
            self.progress.log(f"{made} kept answers made again, complete until {iso(extent.complete_until_ms)}")
        except Exception as error:
            known = translate_error(error)
            if known is None:
                raise
            self.progress.log(f"The kept answers could not be made again: {known}")


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_to_stop(progress: Progress) -> Iterator[threading.Event]:
    """Entered after Spark's start, which has a handler for SIGINT of its own. A second signal ends it at once: nothing
    is lost by that either, it only has to be read again.
    """
    stop = threading.Event()

    def asked(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        progress.log(f"{signal.Signals(number).name}: ending after the running batch")

    before = {number: signal.signal(number, asked) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command("ingest")
@click.option("--once", is_flag=True, help="Take what is there now, then end.")
@click.option("--trigger", type=DURATION, default="30s", show_default=True, help="Time from one batch to the next.")
@click.option("--refresh", type=DURATION, default=None, help="Make the kept answers of open days again, so often.")
@click.option(
    "--on-loss",
    type=click.Choice(["fail", "record"]),
    default="fail",
    show_default=True,
    help="Entries were trimmed before they were read: end with 4, or record the hole and go on.",
)
@click.option(
    "--starting",
    type=click.Choice(["lake", "earliest", "latest"]),
    default="lake",
    show_default=True,
    help="Where: behind what the lake holds; an empty lake begins at the earliest entry.",
)
@click.option(
    "--max-entries",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    metavar="NUMBER",
    help="So many in a batch at most. Fewer where memory is short.",
)
@with_thresholds
@with_site
def command(
    site: Site,
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

    Without --once it runs until it is told to stop (SIGTERM, Ctrl-C: the running batch is finished), and begins again
    by itself when the store was away. Ending it in any other way loses and doubles nothing either.
    """
    if refresh is None:
        refuse({"thresholds": "--threshold"}, "it is for the answers that --refresh makes. Add --refresh 5m.")
    if once:
        refuse({"trigger": "--trigger"}, "--once takes what is there and ends, without a next batch to wait for.")
    refuse(PARTIAL, "it is for questions over a window. An ingest reads all there is.")
    from routebook_pipeline.cli.spark import spark_for

    if once:
        ask_store(site)
    with Progress() as progress, spark_for(site, progress) as spark, told_to_stop(progress) as stop:
        ingest_into(
            spark,
            site,
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
