"""Where a test may end the process, as a power cut would: `ROUTEBOOK_TEST_KILL_AT=<point>:<batch>`.

Proves that a batch is in the lake once, wherever the writer died. Does nothing without the variable.
"""

import os
import signal
from enum import StrEnum
from typing import Final

VARIABLE: Final = "ROUTEBOOK_TEST_KILL_AT"


class Point(StrEnum):
    FILES_WRITTEN = "files-written"
    COMMITTED = "committed"
    PLACE_PUBLISHED = "place-published"


def reach(point: Point, batch: int) -> None:
    """Ends the whole process group (the JVM is in it) when this is the place. Whoever sets the variable starts us in a
    group of our own.
    """
    if os.environ.get(VARIABLE) == f"{point}:{batch}":
        os.killpg(os.getpgrp(), signal.SIGKILL)
