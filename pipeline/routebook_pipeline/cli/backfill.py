"""`routebook pipeline backfill`"""

from collections.abc import Iterator, Sequence
from typing import Final

import click

from routebook_pipeline.cli.options import Site, with_site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.windows import window_options, with_thresholds
from routebook_pipeline.history import Thresholds
from routebook_pipeline.times import When

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
            work.take_files(files)
        if reparse:
            work.reparse()
        work.make_days(start, end, again=again)
    return 0
