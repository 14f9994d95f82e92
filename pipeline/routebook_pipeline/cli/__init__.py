"""`routebook pipeline`: found by the service's command line through the entry point `routebook.commands`."""

import click


@click.group()
def pipeline() -> None:
    """Answers from the history of the fleet, with Spark."""
