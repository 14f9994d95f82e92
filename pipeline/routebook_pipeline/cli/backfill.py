"""`routebook pipeline backfill`"""

from pathlib import Path

import click

from routebook_pipeline.cli.options import Site, with_site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.windows import with_thresholds, with_window
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When


@click.command("backfill")
@with_window
@click.option(
    "--import",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take entries from an exported file (JSON lines: id, d) before; repeatable.",
)
@click.option("--reparse", is_flag=True, help="Before, read again the entries that an older version could not.")
@click.option("--again", is_flag=True, help="Also days that stand already.")
@with_thresholds
@with_site
def command(
    site: Site,
    *,
    start: When | None,
    end: When | None,
    files: tuple[Path, ...],
    reparse: bool,
    again: bool,
    thresholds: Thresholds,
) -> int:
    """Make the snapshots and the kept answers of past days; without --from and --to, of all of them.

    Does only what is missing, or was made from less than the lake holds now. A rerun gives the same rows.
    """
    from routebook_pipeline.cli.backfilling import Backfill  # noqa: PLC0415 Spark's modules take a second
    from routebook_pipeline.cli.running import spark_for  # noqa: PLC0415
    from routebook_pipeline.lake.tables import Lake  # noqa: PLC0415

    lake = Lake(site.lake, site.namespace)
    if not files:
        # A lake that is not there is said before Spark is started.
        lake.changes.pin()
    with Progress() as progress, spark_for(site, progress) as spark:
        work = Backfill(spark, lake, site, progress, thresholds)
        if files:
            work.take_files([str(file) for file in files])
        if reparse:
            work.reparse()
        work.make_days(start, end, again=again)
    return 0
