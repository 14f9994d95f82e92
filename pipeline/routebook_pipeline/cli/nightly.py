"""`routebook pipeline nightly`"""

import threading
from datetime import UTC, datetime

import click

from routebook_pipeline.answers.windows import Settled
from routebook_pipeline.cli.options import Site, with_site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.report import check_writable
from routebook_pipeline.cli.windows import with_thresholds
from routebook_pipeline.errors import AnswerIsNoError
from routebook_pipeline.history import DAY_MS, Thresholds, Window


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
    from routebook_pipeline.answers.answering import Basis  # noqa: PLC0415 Spark's modules take a second
    from routebook_pipeline.answers.reaching import reach_of  # noqa: PLC0415
    from routebook_pipeline.cli.backfilling import Backfill  # noqa: PLC0415
    from routebook_pipeline.cli.ingesting import ask_store, ingest_into  # noqa: PLC0415
    from routebook_pipeline.cli.pages import make_page  # noqa: PLC0415
    from routebook_pipeline.cli.running import spark_for  # noqa: PLC0415
    from routebook_pipeline.lake import upkeep  # noqa: PLC0415
    from routebook_pipeline.lake.tables import Lake  # noqa: PLC0415

    lake = Lake(site.lake, site.namespace)
    ask_store(site)
    with Progress() as progress, spark_for(site, progress) as spark:
        ingest_into(spark, site, progress, threading.Event(), once=True)
        reach = reach_of(lake, site.store_variable)
        midnight_ms = reach.complete_until_ms // DAY_MS * DAY_MS
        settled = Settled(Window(midnight_ms - days * DAY_MS, midnight_ms), midnight_ms)
        page = datetime.fromtimestamp(midnight_ms // 1_000 - 1, UTC).strftime(out)
        check_writable(page)
        Backfill(spark, lake, site, progress, thresholds).make_days(None, None, again=False)
        progress.doing("looking after the files")
        upkeep.compact(lake, say=progress.log)
        upkeep.vacuum(lake, say=progress.log)
        why = make_page(spark, Basis(lake, reach, settled, thresholds, progress.log), page, progress)
    if fail and why:
        raise AnswerIsNoError(f"The answer is no: {why}.")
    return 0
