"""`routebook pipeline ingest`"""

import click

from routebook_pipeline.cli.durations import DURATION
from routebook_pipeline.cli.options import PARTIAL, Site, refuse, with_site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.cli.windows import with_thresholds
from routebook_pipeline.history import Thresholds


@click.command("ingest")
@click.option("--once", is_flag=True, help="Take what is there now, then end.")
@click.option("--trigger", type=DURATION, default="30s", show_default=True, help="Time from one batch to the next.")
@click.option("--refresh", type=DURATION, default=None, help="Make the kept answers of open days again, so often.")
@click.option(
    "--on-loss",
    type=click.Choice(["fail", "record"]),
    default="fail",
    show_default=True,
    help="Entries were trimmed before they were read: end with 4, or record the hole and go on.",
)
@click.option(
    "--starting",
    type=click.Choice(["lake", "earliest", "latest"]),
    default="lake",
    show_default=True,
    help="Where: behind what the lake holds; an empty lake begins at the earliest entry.",
)
@click.option(
    "--max-entries",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    metavar="NUMBER",
    help="So many in a batch at most. Fewer where memory is short.",
)
@with_thresholds
@with_site
def command(
    site: Site,
    *,
    once: bool,
    trigger: float,
    refresh: float | None,
    on_loss: str,
    starting: str,
    max_entries: int,
    thresholds: Thresholds,
) -> int:
    """Read the change stream of the name service into the lake, each change exactly once.

    Without --once it runs until it is told to stop (SIGTERM, Ctrl-C: the running batch is finished), and begins again
    by itself when the store was away. Ending it in any other way loses and doubles nothing either.
    """
    if refresh is None:
        refuse({"thresholds": "--threshold"}, "it is for the answers that --refresh makes. Add --refresh 5m.")
    if once:
        refuse({"trigger": "--trigger"}, "--once takes what is there and ends, without a next batch to wait for.")
    refuse(PARTIAL, "it is for questions over a window. An ingest reads all there is.")
    from routebook_pipeline.cli.ingesting import ask_store, ingest_into  # noqa: PLC0415 Spark's modules take a second
    from routebook_pipeline.cli.running import spark_for  # noqa: PLC0415
    from routebook_pipeline.cli.stopping import told_to_stop  # noqa: PLC0415

    if once:
        ask_store(site)
    with Progress() as progress, spark_for(site, progress) as spark, told_to_stop(progress) as stop:
        ingest_into(
            spark,
            site,
            progress,
            stop,
            once=once,
            trigger_s=trigger,
            refresh_s=refresh,
            on_loss=on_loss,
            starting=starting,
            max_entries=max_entries,
            thresholds=thresholds,
        )
    return 0
