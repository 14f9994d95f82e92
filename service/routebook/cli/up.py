"""`routebook up`"""

import click

from routebook.cli.settings_flags import with_settings
from routebook.settings import Loaded


@click.command("up")
@click.option("--end-with-parent", is_flag=True, help="Stop when the process that started this one is gone.")
@with_settings("up")
def command(loaded: Loaded, end_with_parent: bool) -> int:
    """Try it here: an embedded store (unless one is named) and one worker, on loopback. Ctrl-C stops all of it."""
    from routebook.runtime.start import run_up  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_up(loaded, end_with_parent=end_with_parent)
