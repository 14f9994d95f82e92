"""`routebook pipeline report`"""

from pathlib import Path

import click

from routebook_pipeline.answers.windows import settle
from routebook_pipeline.cli.options import Site, with_site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.windows import with_thresholds, with_window
from routebook_pipeline.errors import AnswerIsNoError, WrongUsageError
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When


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
    from routebook_pipeline.answers.answering import Basis  # noqa: PLC0415 Spark's modules take a second
    from routebook_pipeline.cli.asking import open_lake  # noqa: PLC0415
    from routebook_pipeline.cli.pages import make_page  # noqa: PLC0415
    from routebook_pipeline.cli.running import spark_for  # noqa: PLC0415

    check_writable(out)
    with Progress() as progress:
        lake, reach = open_lake(site, progress)
        settled = settle(reach, start, end, allow_partial=site.allow_partial)
        with spark_for(site, progress) as spark:
            why = make_page(spark, Basis(lake, reach, settled, thresholds, progress.log), out, progress)
    if fail and why:
        raise AnswerIsNoError(f"The answer is no: {why}.")
    return 0


def check_writable(out: str) -> None:
    """Before minutes of work."""
    if out != "-" and Path(out).is_dir():
        raise WrongUsageError(f"{out} is a folder. Name the file: --out {Path(out) / 'report.html'}")
