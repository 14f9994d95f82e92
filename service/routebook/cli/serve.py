"""`routebook serve`"""

import click

from routebook.cli.settings_flags import with_settings
from routebook.settings import Loaded


@click.command("serve")
@with_settings("serve")
def command(loaded: Loaded) -> int:
    """Serve a fleet: workers on the store that --redis-url names."""
    from routebook.runtime.start import run_serve  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_serve(loaded)
