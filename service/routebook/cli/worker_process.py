"""`routebook worker-process`: what a supervisor starts; not for people."""

import click


@click.command("worker-process", hidden=True)
@click.argument("parent", type=int)
def command(parent: int) -> int:
    """One worker of `serve --workers N`."""
    from routebook.runtime.handover import die_with_parent  # noqa: PLC0415 first of all, before the slow imports

    die_with_parent(parent)
    from routebook.runtime.worker_process import run_worker_process  # noqa: PLC0415

    return run_worker_process(parent)
