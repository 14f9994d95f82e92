"""The process of one worker of `--workers N`. Its supervisor sends commands over standard input (`handover`)."""

import asyncio
import io
import logging
import os
import shutil
import sys
from pathlib import Path

import uvloop

from routebook.errors import RoutebookError
from routebook.observability.logs import start_logs
from routebook.runtime.exits import exit_code_of
from routebook.runtime.handover import Handover, follow_parent
from routebook.runtime.ports import listen_privately
from routebook.runtime.stopping import Stop
from routebook.runtime.supervisor import READY
from routebook.runtime.worker import Worker
from routebook.settings import LiveSettings

_log = logging.getLogger(__name__)


def run_worker_process(parent: int) -> int:
    # Unbuffered: a thread waits in this file when the interpreter ends, and must not hold a buffer's lock then.
    standard_input = io.FileIO(0, closefd=False)
    line = standard_input.readline()
    if not line:
        return 1  # The supervisor ended before it sent anything.
    handover = Handover.from_line(line)
    live = LiveSettings(handover.loaded())
    start_logs(live, worker=handover.number)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(handover, live, standard_input))
    except RoutebookError as error:
        _log.error("%s", error)
        return exit_code_of(error)
    finally:
        _remove_orphaned_folder(parent, Path(handover.admin_socket).parent)
    return 0


async def _run(handover: Handover, live: LiveSettings, standard_input: io.FileIO) -> None:
    stop = Stop()
    with stop.on_signals():
        follow_parent(standard_input, stop, live.current.drain_ms)
        admin = listen_privately(Path(handover.admin_socket))
        await Worker(live, handover.ports(), admin, stop).run(_report_ready)


def _remove_orphaned_folder(parent: int, folder: Path) -> None:
    """A supervisor removes its folder itself, unless it was killed; then all workers end and any of them removes it."""
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)


def _report_ready() -> None:
    try:
        os.write(sys.stdout.fileno(), READY)
    except BrokenPipeError:
        return  # The supervisor has ended; `follow_parent` stops this process.
