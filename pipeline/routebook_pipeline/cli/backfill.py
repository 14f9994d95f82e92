"""The steps of `backfill`, which `nightly` takes, too.

`routebook pipeline backfill`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.answers.coverage import resolve_window
from routebook_pipeline.cli.options import Site, window_options, with_site, with_thresholds
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When, day_of, iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.tables import Lake


@dataclass(frozen=True)
class Backfill:
    spark: "SparkSession"
    lake: "Lake"
    site: Site
    progress: Progress
    thresholds: Thresholds

    def take_files(self, files: Sequence[str]) -> None:
        from routebook_pipeline.lake.file_import import import_files

        self.progress.doing(f"reading {len(files)} files")
        done = import_files(self.spark, self.lake, files)
        if done is None:
            self.progress.log("imported: nothing that the lake did not hold")
        else:
            self.progress.log(f"imported: {done.entries} entries, versions {done.first} to {done.last}")

    def reparse(self) -> None:
        from routebook_pipeline.lake.reparse import reparse

        self.progress.doing("reading again what could not be read")
        done = reparse(self.spark, self.lake)
        since = f", from {iso(done.first_ms)} on" if done.first_ms is not None else ""
        self.progress.log(f"reparsed: {done.readable} of {done.raw} entries can be read now{since}")

    def make_days(self, start: When | None, end: When | None, *, again: bool) -> None:
        from routebook_pipeline.answers.computation import history_extent
        from routebook_pipeline.answers.daily import days_between, refresh
        from routebook_pipeline.lake.snapshots import build_days

        extent = history_extent(self.lake, self.site.store_variable)
        first = start if start is not None or extent.since_ms is None else When(ms=extent.since_ms)
        window = resolve_window(extent, first, end, allow_partial=self.site.allow_partial).window
        days = list(days_between(window.start_ms, window.end_ms))
        self.progress.doing("building snapshots")
        names = [day_of(day.start_ms) for day in days]
        build_days(self.spark, self.lake, names, rebuild=again, log=self.progress.log)
        made = refresh(
            self.spark,
            self.lake,
            extent,
            iter(days),
            thresholds=self.thresholds,
            recompute=again,
            report_progress=self.progress.doing,
        )
        self.progress.log(
            f"{made} kept answers made, of {len(days)} days, complete until {iso(extent.complete_until_ms)}"
        )


IMPORT: Final = "--import"


class TakingFiles(click.Command):
    """`--import FILE…`: as many files as stand behind it, for a shell turns `*.jsonl` into several words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_one_by_one(args)))


def _one_by_one(words: Sequence[str]) -> Iterator[str]:
    """With the option before each of its files."""
    taking = False
    for at, word in enumerate(words):
        if word.startswith("-"):
            taking = word == IMPORT or word.startswith(f"{IMPORT}=")
        elif taking and words[at - 1] != IMPORT:
            yield IMPORT
        yield word


@click.command("backfill", cls=TakingFiles)
@window_options(start="the lake's first day", end="as far as the history is complete, the open day included")
@click.option(
    IMPORT,
    "files",
    multiple=True,
    metavar="FILE...",
    help="Before, take entries from files that `export` wrote, or whoever writes JSON lines with id and d.",
)
@click.option("--reparse", is_flag=True, help="Before, read again the entries that an older version could not.")
@click.option("--again", is_flag=True, help="Also snapshots and answers that stand already.")
@with_thresholds
@with_site
def command(
    site: Site,
    *,
    start: When | None,
    end: When | None,
    files: tuple[str, ...],
    reparse: bool,
    again: bool,
    thresholds: Thresholds,
) -> int:
    """Make the snapshots and the kept answers of all days, or of those that have a part between --from and --to.

    Does only what is missing, or was made from less than the lake holds now, or with other thresholds. A rerun gives
    the same rows.

    \b
    routebook pipeline backfill --from -7d --threshold objective=0.999
    routebook pipeline backfill --import exports/*.jsonl
    """
    from routebook_pipeline.cli.spark import spark_for
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(site.lake, site.namespace)
    if not files:
        # A lake that is not there is said before Spark is started.
        lake.changes.pin()
    with Progress() as progress, spark_for(site, progress) as spark:
        work = Backfill(spark, lake, site, progress, thresholds)
        if files:
            work.take_files(files)
        if reparse:
            work.reparse()
        work.make_days(start, end, again=again)
    return 0
