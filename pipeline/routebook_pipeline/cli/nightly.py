"""`routebook pipeline nightly`"""

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.answers.coverage import ResolvedWindow
from routebook_pipeline.cli.backfill import Backfill
from routebook_pipeline.cli.ingest import run_ingest
from routebook_pipeline.cli.options import PARTIAL, CommonOptions, refuse_flags, with_common_options, with_thresholds
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.report import check_is_no_folder, write_page
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.history import DAY_MS, Thresholds, Window
from routebook_pipeline.times import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES: Final = 3


@click.command("nightly", short_help="Ingest, backfill, maintenance and report, for cron.")
@click.option("--out", required=True, metavar="FILE", help="The report; %Y, %m and %d stand for the last day in it.")
@click.option("--days", type=click.IntRange(min=1), default=1, show_default=True, help="Number of days in the report.")
@with_thresholds
@click.option("--fail", is_flag=True, help="End with 1 if an objective was missed or the history is not ok.")
@with_common_options
def command(common: CommonOptions, *, out: str, days: int, thresholds: Thresholds, fail: bool) -> int:
    """For cron: ingest --once, backfill, compact, vacuum, and a report up to the last midnight (UTC), with one Spark.

    It ends at the first step that fails, with that step's exit code: a report of a history that could not be read would
    be wrong.
    """
    refuse_flags(PARTIAL, "the report of a night is about whole days.")
    from routebook_pipeline.answers.computation import AnswerContext, history_extent
    from routebook_pipeline.cli.spark import spark_session
    from routebook_pipeline.lake.maintenance import compact, vacuum
    from routebook_pipeline.lake.tables import Lake
    from routebook_pipeline.source.stream import StreamReader

    lake = Lake(common.lake, common.namespace)
    # Reports an unreachable store before Spark starts.
    with StreamReader(common.url_env, common.namespace) as store:
        started_ms = store.newest().now_ms
    with Progress() as progress, spark_session(common, progress) as spark:
        midnight_ms = ingest_past_midnight(spark, common, progress, started_ms)
        extent = history_extent(lake, common.store_variable)
        resolved = ResolvedWindow(Window(midnight_ms - days * DAY_MS, midnight_ms), midnight_ms)
        page = datetime.fromtimestamp(midnight_ms // 1_000 - 1, UTC).strftime(out)
        check_is_no_folder(page)
        Backfill(spark, lake, common, progress, thresholds).build_days(None, None, again=False)
        progress.show("joining and deleting files")
        compact(lake, log=progress.log)
        vacuum(lake, log=progress.log)
        context = AnswerContext(lake, extent, resolved, thresholds, progress.log)
        reason = write_page(spark, context, page, progress)
    if fail and reason:
        raise NegativeAnswerError(f"The answer is no: {reason}.")
    return 0


def ingest_past_midnight(spark: "SparkSession", common: CommonOptions, progress: Progress, started_ms: int) -> int:
    """Returns the last midnight that the lake is complete until.

    If the stream grows during an ingest, the lake is complete only until the last entry that was read, which may be
    from yesterday. The entries after it are from today, so they are read too.
    """
    from routebook_pipeline.lake.reading import complete_until
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(common.lake, common.namespace)
    midnight_ms = started_ms // DAY_MS * DAY_MS
    until_ms = 0
    for _ in range(TRIES):
        run_ingest(spark, common, progress, threading.Event(), once=True)
        if not lake.changes.pin().files:
            raise NegativeAnswerError(
                f"There is no history of the namespace {common.namespace!r} yet, so there is nothing to report: its "
                "workers have written no change. Check that the namespace is right (--namespace)."
            )
        # Without asking the store: if the stream grows before the next step, that step would get an earlier time.
        until_ms = complete_until(lake, None)
        if until_ms >= midnight_ms:
            return until_ms // DAY_MS * DAY_MS
    raise NegativeAnswerError(
        f"After {TRIES} ingests the history is complete until {iso(until_ms)}, but the day to report ended at "
        f"{iso(midnight_ms)}. If the store's clock was set back, run the command again later."
    )
