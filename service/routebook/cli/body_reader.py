"""`routebook body-reader`: what a worker starts to read large bodies; not for people."""

import click


@click.command("body-reader", hidden=True)
def command() -> int:
    """Reads registrations for the worker that started it, from standard input."""
    from routebook.remoting.body_reading_process import run_body_reading_process  # noqa: PLC0415

    return run_body_reading_process()
