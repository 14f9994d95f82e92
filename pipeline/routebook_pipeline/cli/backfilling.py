"""The steps of `backfill`, which `nightly` takes, too."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from routebook_pipeline.answers.daily import days_between, refresh
from routebook_pipeline.answers.reaching import reach_of
from routebook_pipeline.answers.windows import settle
from routebook_pipeline.cli.options import Site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.history import Thresholds
from routebook_pipeline.lake import upkeep
from routebook_pipeline.lake.snapshots import build_days
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.times import When, day_of, iso


@dataclass(frozen=True)
class Backfill:
    spark: SparkSession
    lake: Lake
    site: Site
    progress: Progress
    thresholds: Thresholds

    def take_files(self, files: Sequence[str]) -> None:
        self.progress.doing(f"reading {len(files)} files")
        done = upkeep.import_files(self.spark, self.lake, files)
        if done is None:
            self.progress.log("imported: nothing that the lake did not hold")
        else:
            self.progress.log(f"imported: {done.entries} entries, versions {done.first} to {done.last}")

    def reparse(self) -> None:
        self.progress.doing("reading again what could not be read")
        done = upkeep.reparse(self.spark, self.lake)
        since = f", from {iso(done.first_ms)} on" if done.first_ms is not None else ""
        self.progress.log(f"reparsed: {done.readable} of {done.raw} entries can be read now{since}")

    def make_days(self, start: When | None, end: When | None, *, again: bool) -> None:
        reach = reach_of(self.lake, self.site.store_variable)
        first = start if start is not None or reach.since_ms is None else When(ms=reach.since_ms)
        window = settle(reach, first, end, allow_partial=self.site.allow_partial).window
        days = list(days_between(window.start_ms, window.end_ms))
        self.progress.doing("building snapshots")
        names = [day_of(day.start_ms) for day in days]
        build_days(self.spark, self.lake, names, again=again, say=self.progress.log)
        made = refresh(
            self.spark,
            self.lake,
            reach,
            iter(days),
            thresholds=self.thresholds,
            again=again,
            tell=self.progress.doing,
        )
        self.progress.log(
            f"{made} kept answers made, of {len(days)} days, complete until {iso(reach.complete_until_ms)}"
        )
