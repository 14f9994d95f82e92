"""`routebook pipeline nightly`"""

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from routebook_pipeline.answers.coverage import ResolvedWindow
from routebook_pipeline.cli.backfill import Backfill
from routebook_pipeline.cli.ingest import ingest_into
from routebook_pipeline.cli.options import PARTIAL, Site, refuse, with_site, with_thresholds
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.report import check_writable, make_page
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.history import DAY_MS, Thresholds, Window
from routebook_pipeline.times import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES: Final = 3


@click.command("nightly")
@click.option("--out", required=True, metavar="FILE", help="The report; %Y, %m, %d stand for the day it is about.")
@click.option("--days", type=click.IntRange(min=1), default=1, show_default=True, help="So many days in the report.")
@with_thresholds
@click.option("--fail", is_flag=True, help="End with 1 when an objective was missed or the history is not ok.")
@with_site
def command(site: Site, *, out: str, days: int, thresholds: Thresholds, fail: bool) -> int:
    """For cron: ingest --once, backfill, compact, vacuum, and a report up to last midnight (UTC), with one Spark.

    A step that fails ends it, with its exit code: a report of what could not be read would be wrong.
    """
    refuse(PARTIAL, "a night's report is of whole days.")
    from routebook_pipeline.answers.computation import AnswerContext, history_extent
    from routebook_pipeline.cli.spark import spark_for
    from routebook_pipeline.lake.maintenance import compact, vacuum
    from routebook_pipeline.lake.tables import Lake
    from routebook_pipeline.source.stream import StreamReader

    lake = Lake(site.lake, site.namespace)
    # Before Spark is started: a store that does not answer is said at once.
    with StreamReader(site.url_env, site.namespace) as store:
        began_ms = store.newest().now_ms
    with Progress() as progress, spark_for(site, progress) as spark:
        midnight_ms = read_past_midnight(spark, site, progress, began_ms)
        extent = history_extent(lake, site.store_variable)
        resolved = ResolvedWindow(Window(midnight_ms - days * DAY_MS, midnight_ms), midnight_ms)
        page = datetime.fromtimestamp(midnight_ms // 1_000 - 1, UTC).strftime(out)
        check_writable(page)
        Backfill(spark, lake, site, progress, thresholds).make_days(None, None, again=False)
        progress.doing("looking after the files")
        compact(lake, log=progress.log)
        vacuum(lake, log=progress.log)
        why = make_page(spark, AnswerContext(lake, extent, resolved, thresholds, progress.log), page, progress)
    if fail and why:
        raise NegativeAnswerError(f"The answer is no: {why}.")
    return 0


def read_past_midnight(spark: "SparkSession", site: Site, progress: Progress, began_ms: int) -> int:
    """The last midnight that the lake holds everything before, whatever comes from now on.

    Who finds that something followed what he read knows only that he read until then, which may have been yesterday.
    What followed is of today, so it is read, too.
    """
    from routebook_pipeline.lake.reading import complete_until
    from routebook_pipeline.lake.tables import Lake

    lake = Lake(site.lake, site.namespace)
    midnight_ms = began_ms // DAY_MS * DAY_MS
    until_ms = 0
    for _ in range(TRIES):
        ingest_into(spark, site, progress, threading.Event(), once=True)
        if not lake.changes.pin().files:
            raise NegativeAnswerError(
                f"There is no history of the namespace {site.namespace!r} yet, so there is nothing to report: its "
                "workers have written no change. Is it the right namespace (--namespace)?"
            )
        # Not what the store says now: the next step would be told less, if something comes in between.
        until_ms = complete_until(lake, None)
        if until_ms >= midnight_ms:
            return until_ms // DAY_MS * DAY_MS
    raise NegativeAnswerError(
        f"The history is complete until {iso(until_ms)} after {TRIES} readings, and the day to report ended at "
        f"{iso(midnight_ms)}. Was the store's clock set back? Run the command again."
    )
