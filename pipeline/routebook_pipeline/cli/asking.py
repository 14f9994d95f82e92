"""What every command that asks needs beforehand: the lake, and how far its history reaches."""

from routebook_pipeline.answers.reaching import reach_of
from routebook_pipeline.answers.windows import Reach
from routebook_pipeline.cli.options import Site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.lake.tables import Lake


def open_lake(site: Site, progress: Progress) -> tuple[Lake, Reach]:
    """Before Spark is started: what is refused, is refused at once."""
    progress.doing("opening the lake")
    lake = Lake(site.lake, site.namespace)
    reach = reach_of(lake, site.store_variable)
    progress.clear()
    return lake, reach
