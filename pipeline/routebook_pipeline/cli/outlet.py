"""`--out FILE`: what a command makes, as a file; for those that answer on standard output, the answer.

The latter for `spark-submit`, which pours both outputs of a Python program into one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import click

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.replacing import replacing

out_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--out", default=None, metavar="FILE", help="Write the answer there, and not on standard output."
)


@contextmanager
def answers_into(out: str | None) -> Iterator[None]:
    if out is None:
        yield
        return
    with file_for(out) as fresh, fresh.open("w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield


@contextmanager
def file_for(out: str, flag: str = "--out") -> Iterator[Path]:
    """Where to write it; see `replacing`."""
    try:
        with replacing(Path(out)) as fresh:
            yield fresh
    except OSError as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another place with {flag}.") from error
