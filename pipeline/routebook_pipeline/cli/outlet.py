"""`--out FILE`: the answer into a file instead of on standard output.

For `spark-submit`, which pours both outputs of a Python program into one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import click

from routebook_pipeline.errors import UnreachableError

out_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--out", default=None, metavar="FILE", help="Write the answer there, and not on standard output."
)


@contextmanager
def answers_into(out: str | None) -> Iterator[None]:
    if out is None:
        yield
        return
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        with Path(out).open("w", encoding="utf-8") as stream, redirect_stdout(stream):
            yield
    except OSError as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another file with --out.") from error
