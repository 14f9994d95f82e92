"""The report's page, from the lake to its file.

`routebook pipeline report`
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from routebook_pipeline.answers.coverage import integrity_line, is_ok, resolve_window, window_line
from routebook_pipeline.cli.options import Site, with_site, with_thresholds, with_window
from routebook_pipeline.cli.output import file_for
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from routebook_pipeline.answers.computation import AnswerContext


def make_page(spark: "SparkSession", context: "AnswerContext", out: str, progress: Progress) -> str:
    """Why its answer is no; empty when all is well."""
    from routebook_pipeline.answers.computation import failure_reason
    from routebook_pipeline.answers.report_data import collect_report_data
    from routebook_pipeline.report.page import render

    findings = collect_report_data(spark, context, report_progress=progress.doing, made_by="routebook pipeline report")
    page = render(findings)
    progress.clear()
    if out == "-":
        click.echo(page)
    else:
        # The service may be handing out the page of yesterday from there.
        with file_for(out) as fresh:
            fresh.write_text(page, encoding="utf-8")
        progress.log(f"{out}: {len(page.encode()) // 1024} KiB")
    window, until_ms = context.resolved.window, context.extent.complete_until_ms
    progress.log(window_line(window.start_ms, window.end_ms, until_ms, context.resolved.asked_until_ms))
    progress.log(integrity_line(findings.integrity))
    if not is_ok(findings.integrity):
        return "the history is not ok"
    return failure_reason("availability", [dict(row) for row in findings.availability_by_cluster], context.thresholds)


@click.command("report")
@with_window
@click.option("--out", required=True, metavar="FILE", help="The page; its folder is made. `-` prints it.")
@with_thresholds
@click.option("--fail", is_flag=True, help="End with 1 when an objective is missed or the history not ok.")
@with_site
def command(site: Site, *, start: When | None, end: When | None, out: str, thresholds: Thresholds, fail: bool) -> int:
    """All answers on one page: one HTML file, which needs no network and no script.

    \b
    routebook pipeline report --from -7d --out report.html
    """
    from routebook_pipeline.answers.computation import AnswerContext
    from routebook_pipeline.cli.spark import open_lake, spark_for

    check_writable(out)
    with Progress() as progress:
        lake, extent = open_lake(site, progress)
        resolved = resolve_window(extent, start, end, allow_partial=site.allow_partial)
        with spark_for(site, progress) as spark:
            why = make_page(spark, AnswerContext(lake, extent, resolved, thresholds, progress.log), out, progress)
    if fail and why:
        raise NegativeAnswerError(f"The answer is no: {why}.")
    return 0


def check_writable(out: str) -> None:
    """Before minutes of work."""
    if out != "-" and Path(out).is_dir():
        raise WrongUsageError(f"{out} is a folder. Name the file: --out {Path(out) / 'report.html'}")
