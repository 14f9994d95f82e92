"""Where Arrow and the `deltalake` wheel are asked: what they raise becomes an error of ours here, and nowhere else."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow
from deltalake.exceptions import DeltaError

from routebook_pipeline.errors import MAKE_ROOM, UnreachableError

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_STACK: Final = re.compile(r"\s+\d+: (?:<unknown>|[\w:<>]+\n).*", re.DOTALL)
"""The wheel adds where in its code it was, for its authors."""
LONGEST_REASON: Final = 300


@contextmanager
def reaching(place: str, doing: str) -> Iterator[None]:
    """UnreachableError: `place` cannot be `doing`."""
    try:
        yield
    except (DeltaError, OSError, pyarrow.ArrowException) as error:
        raise UnreachableError(f"{place} cannot be {doing}: {_reason(error)} {_advice(error)}") from error


def _reason(error: Exception) -> str:
    """On one line: Spark hands on the text of an error by the line."""
    words = " ".join(_STACK.sub("", _COLOURS.sub("", str(error))).replace("↳", "").split()).rstrip(".")
    if len(words) > LONGEST_REASON:
        return f"{words[:LONGEST_REASON]}…"
    return f"{words or type(error).__name__}."


def _advice(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MAKE_ROOM
    return (
        "Is it there, and may this process read and write it? For an object store, its credentials are those of the "
        "environment."
    )
