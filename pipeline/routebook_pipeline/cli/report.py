"""`routebook pipeline report`"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from routebook_pipeline.answers.coverage import integrity_line, is_ok, resolve_window, window_line
from routebook_pipeline.cli.options import CommonOptions, with_common_options, with_thresholds, with_window
from routebook_pipeline.cli.output import output_file
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.answers.computation import AnswerContext


@click.command("report", short_help="Write all answers to one HTML page.")
@with_window
@click.option("--out", required=True, metavar="FILE", help="The page; missing folders are created. `-` prints it.")
@with_thresholds
@click.option("--fail", is_flag=True, help="End with 1 if an objective was missed or the history is not ok.")
@with_common_options
def command(
    common: CommonOptions, *, start: When | None, end: When | None, out: str, thresholds: Thresholds, fail: bool
) -> int:
    """Write all answers to one page: a single HTML file that needs no network and no script.

    \b
    routebook pipeline report --from -7d --out report.html
    """
    from routebook_pipeline.answers.computation import AnswerContext
    from routebook_pipeline.cli.spark import open_lake, spark_session

    check_is_no_folder(out)
    with Progress() as progress:
        lake, extent = open_lake(common, progress)
        resolved = resolve_window(extent, start, end, allow_partial=common.allow_partial)
        with spark_session(common, progress) as spark:
            context = AnswerContext(lake, extent, resolved, thresholds, progress.log)
            reason = write_page(spark, context, out, progress)
    if fail and reason:
        raise NegativeAnswerError(f"The answer is no: {reason}.")
    return 0


def check_is_no_folder(out: str) -> None:
    """Called before the page is computed, which takes minutes."""
    if out != "-" and Path(out).is_dir():
        raise WrongUsageError(f"{out} is a folder. Name a file: --out {Path(out) / 'report.html'}")


def write_page(spark: "SparkSession", context: "AnswerContext", out: str, progress: Progress) -> str:
    """Returns why `--fail` fails; empty when it does not."""
    from routebook_pipeline.answers.computation import collect_report_data, failure_reason
    from routebook_pipeline.report.page import render

    data = collect_report_data(spark, context, report_progress=progress.show, made_by="routebook pipeline report")
    page = render(data)
    progress.clear()
    if out == "-":
        click.echo(page)
    else:
        # The service may be serving yesterday's page from this file.
        with output_file(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
        progress.log(f"{out}: {len(page.encode()) // 1024} KiB")
    window, until_ms = context.resolved.window, context.extent.complete_until_ms
    progress.log(window_line(window.start_ms, window.end_ms, until_ms, context.resolved.asked_until_ms))
    progress.log(integrity_line(data.integrity))
    if not is_ok(data.integrity):
        return "the history is not ok"
    return failure_reason("availability", [dict(row) for row in data.availability_by_cluster], context.thresholds)
