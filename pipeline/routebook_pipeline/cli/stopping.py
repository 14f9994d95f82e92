"""SIGTERM and Ctrl-C of a run without end: the running batch is finished, then it ends in peace."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from routebook_pipeline.cli.progress import Progress

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_to_stop(progress: Progress) -> Iterator[threading.Event]:
    """Entered after Spark's start, which has a handler for SIGINT of its own. A second signal ends it at once: nothing
    is lost by that either, it only has to be read again.
    """
    stop = threading.Event()

    def asked(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        progress.log(f"{signal.Signals(number).name}: ending after the running batch")

    before = {number: signal.signal(number, asked) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
