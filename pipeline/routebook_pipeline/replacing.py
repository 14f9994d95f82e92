"""A file that is there whole, or as it was before."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Where to write what shall be at `out`: beside it, and put there in one step when all went well. A reader never
    sees half of it, and after a failure the old one stands. Its folder is made.
    """
    if out.exists() and not out.is_file():
        # A terminal, a pipe or /dev/null is written to, and never replaced. A folder refuses.
        yield out
        return
    # A link stays one: what it leads to is replaced.
    out = Path(os.path.realpath(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    # Others may be making the same at this moment.
    fresh = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(out)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
