"""The wires between `ingest` and the lake: what is told, and the kept answers that are made again between batches."""

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from routebook_pipeline.answers.daily import days_between, refresh
from routebook_pipeline.answers.reaching import reach_of
from routebook_pipeline.cli.options import Site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.spark_errors import translate
from routebook_pipeline.history import DAY_MS, DEFAULTS, Thresholds
from routebook_pipeline.lake.feeds import Progress as Told
from routebook_pipeline.lake.ingest import ingest
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.stream_store import StreamReader
from routebook_pipeline.times import iso


def ask_store(site: Site) -> None:
    """Before Spark is started: a store that does not answer is said at once."""
    with StreamReader(site.url_env, site.namespace) as stream:
        stream.newest()


def ingest_into(
    spark: SparkSession,
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
    lake = Lake(site.lake, site.namespace)
    progress.doing("reading what is new" if once else "waiting for changes")
    logbook = Logbook(progress)
    refresher = None if refresh_s is None else Refresher(spark, lake, site, progress, stop, refresh_s, thresholds)
    options = {"url_env": site.url_env}
    if max_entries is not None:
        options["max_entries_per_trigger"] = str(max_entries)

    def announce(told: Told) -> None:
        logbook.write(told)
        if refresher is not None and told.committed is not None:
            refresher.look()

    ingest(
        spark,
        lake,
        once=once,
        announce=announce,
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

    def write(self, told: Told) -> None:
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

    spark: SparkSession
    lake: Lake
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
        try:
            reach = reach_of(self.lake, self.site.url_env)
            # The day before, too: its last entries may have come since.
            days = days_between(reach.complete_until_ms - DAY_MS, reach.complete_until_ms)
            made = refresh(
                self.spark,
                self.lake,
                reach,
                days,
                thresholds=self.thresholds,
                tell=self.progress.doing,
                ended=self.stop.is_set,
            )
            self.progress.log(f"{made} kept answers made again, complete until {iso(reach.complete_until_ms)}")
        except Exception as error:
            known = translate(error)
            if known is None:
                raise
            self.progress.log(f"The kept answers could not be made again: {known}")
