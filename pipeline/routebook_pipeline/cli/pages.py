"""The report's page, from the lake to its file."""

import click
from pyspark.sql import SparkSession

from routebook_pipeline.answers.answering import Basis, is_no
from routebook_pipeline.answers.gathering import gather
from routebook_pipeline.answers.statement import integrity_line, is_ok, window_line
from routebook_pipeline.cli.outlet import file_for
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.report.page import render


def make_page(spark: SparkSession, basis: Basis, out: str, progress: Progress) -> str:
    """Why its answer is no; empty when all is well."""
    findings = gather(spark, basis, tell=progress.doing, made_by="routebook pipeline report")
    page = render(findings)
    progress.clear()
    if out == "-":
        click.echo(page)
    else:
        # The service may be handing out the page of yesterday from there.
        with file_for(out) as fresh:
            fresh.write_text(page, encoding="utf-8")
        progress.log(f"{out}: {len(page.encode()) // 1024} KiB")
    window, until_ms = basis.settled.window, basis.reach.complete_until_ms
    progress.log(window_line(window.start_ms, window.end_ms, until_ms, basis.settled.asked_until_ms))
    progress.log(integrity_line(findings.integrity))
    if not is_ok(findings.integrity):
        return "the history is not ok"
    return is_no("availability", [dict(row) for row in findings.availability_by_cluster], basis.thresholds)
