"""`routebook pipeline backfill`"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.answers.coverage import resolve_window
from routebook_pipeline.cli.options import CommonOptions, window_options, with_common_options, with_thresholds
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When, day_of, iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.lake.tables import Lake

IMPORT: Final = "--import"


class BackfillCommand(click.Command):
    """`--import` takes all file names after it, because a shell expands `*.jsonl` to several words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_repeat_import(args)))


def _repeat_import(words: Sequence[str]) -> Iterator[str]:
    """Puts the option before each of its file names, as click expects it."""
    is_file_name = False
    for at, word in enumerate(words):
        if word.startswith("-"):
            is_file_name = word == IMPORT or word.startswith(f"{IMPORT}=")
        elif is_file_name and words[at - 1] != IMPORT:
            yield IMPORT
        yield word


@click.command("backfill", cls=BackfillCommand, short_help="Build snapshots and stored answers.")
@window_options(
    default_start="the lake's first day", default_end="the end of the complete history, with the current day"
)
@click.option(
    IMPORT,
    "files",
    multiple=True,
    metavar="FILE...",
    help="First import entries from files that `export` wrote: JSON lines with id and d.",
)
@click.option("--reparse", is_flag=True, help="First parse entries again that an older release could not read.")
@click.option("--again", is_flag=True, help="Also rebuild snapshots and answers that are up to date.")
@with_thresholds
@with_common_options
def command(
    common: CommonOptions,
    *,
    start: When | None,
    end: When | None,
    files: tuple[str, ...],
    reparse: bool,
    again: bool,
    thresholds: Thresholds,
) -> int:
    """Build the snapshots and the stored answers of all days, or of those between --from and --to.

    Only what is missing or stale is built: made from less than the lake has now, or with other thresholds. Running it
    again gives the same rows.

    \b
    routebook pipeline backfill --from -7d --threshold objective=0.999
    routebook pipeline backfill --import exports/*.jsonl
    """
    from routebook_pipeline.cli.spark import spark_session
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(common.lake, common.namespace)
    if not files:
        # Reports a lake that does not exist before Spark starts.
        lake.changes.pin()
    with Progress() as progress, spark_session(common, progress) as spark:
        backfill = Backfill(spark, lake, common, progress, thresholds)
        if files:
            backfill.import_files(files)
        if reparse:
            backfill.reparse()
        backfill.build_days(start, end, again=again)
    return 0


@dataclass(frozen=True)
class Backfill:
    spark: "SparkSession"
    lake: "Lake"
    common: CommonOptions
    progress: Progress
    thresholds: Thresholds

    def import_files(self, files: Sequence[str]) -> None:
        from routebook_pipeline.lake.file_import import import_files

        self.progress.show(f"importing {len(files)} files")
        imported = import_files(self.spark, self.lake, files)
        if imported is None:
            self.progress.log("imported: nothing, the lake has all entries already")
        else:
            self.progress.log(f"imported: {imported.entries} entries, versions {imported.first} to {imported.last}")

    def reparse(self) -> None:
        from routebook_pipeline.lake.reparse import reparse

        self.progress.show("parsing unreadable entries again")
        done = reparse(self.spark, self.lake)
        since = f", since {iso(done.first_ms)}" if done.first_ms is not None else ""
        self.progress.log(f"reparsed: {done.readable} of {done.raw} entries are readable now{since}")

    def build_days(self, start: When | None, end: When | None, *, again: bool) -> None:
        """Builds the snapshots and the stored answers of all days of the window, by default of the whole history."""
        from routebook_pipeline.answers.computation import history_extent
        from routebook_pipeline.answers.daily import days_between, refresh
        from routebook_pipeline.lake.snapshots import build_days

        extent = history_extent(self.lake, self.common.store_variable)
        first = start if start is not None or extent.since_ms is None else When(ms=extent.since_ms)
        window = resolve_window(extent, first, end, allow_partial=self.common.allow_partial).window
        days = list(days_between(window.start_ms, window.end_ms))
        self.progress.show("building snapshots")
        names = [day_of(day.start_ms) for day in days]
        build_days(self.spark, self.lake, names, rebuild=again, log=self.progress.log)
        computed = refresh(
            self.spark,
            self.lake,
            extent,
            iter(days),
            thresholds=self.thresholds,
            recompute=again,
            report_progress=self.progress.show,
        )
        self.progress.log(
            f"{computed} stored answers computed, for {len(days)} days, complete until {iso(extent.complete_until_ms)}"
        )
