"""A worker process must not outlive its supervisor, not even one that was killed with -9.

Two ways at once, as neither is enough: the end of standard input (any system; but a stuck interpreter does
not read it), and Linux's parent-death signal (which the kernel delivers whatever we do).
"""

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from typing import BinaryIO

from routebook.process.stopping import Stop

_PR_SET_PDEATHSIG = 1
PARENT_DIED = signal.SIGUSR2
"""Not SIGTERM: the kernel sends it once for each dying thread of the parent, and a second SIGTERM would force."""
GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.3


def die_with_parent(parent: int) -> None:
    """As early as possible. The supervisor forks from its main thread, whose end is the process's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:
        # It died before we asked to be told.
        os._exit(1)


def stop_when_parent_goes(standard_input: BinaryIO, stop: Stop, drain_ms: int) -> None:
    """An orderly stop first; and an end in any case, from a thread that no blocked event loop can hold."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(PARENT_DIED, stop.ask, "the supervisor is gone")

    def watch() -> None:
        while standard_input.read(1):
            pass
        try:
            loop.call_soon_threadsafe(stop.ask, "the supervisor is gone")
        except RuntimeError:
            return  # The loop has ended: so do we.
        time.sleep(drain_ms / 1000 + GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


async def stop_when_orphaned(stop: Stop) -> None:
    """For `make up`: make passes Ctrl-C on, but a make that is killed would leave its child behind."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 the end of a process that is not our child sets no event
        await asyncio.sleep(_LOOK_SECONDS)
    stop.ask("the process that started this one is gone")
