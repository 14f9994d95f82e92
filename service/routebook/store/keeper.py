"""Keeps one store server for as long as its owner lives, and not a moment longer.

Run as a program of its own (`embedded` starts it), standard library only: `python -I -S keeper.py RUN_DIR
DISCARD_DIR SERVER ARG…`

Why a process in between: an owner that is killed with -9 runs no cleanup, and the alternatives have holes.
Linux's parent-death signal fires when the *thread* that forked ends and does not exist on macOS; a function
between fork and exec is unsafe once the owner has threads. Here the owner holds the writing end of our
standard input, so its death, of whatever cause, is an end of file to us, and closing it is also how the
owner asks for an orderly stop.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys

PR_SET_PDEATHSIG = 1
PROCESS_ID_FILE = "server.pid"
KILL_AFTER_SECONDS = 15.0


def run_server(command: list[str]) -> int:
    """Fork and exec. This process has one thread, so the death signal below is about the process."""
    keeper = os.getpid()
    server = os.fork()
    if server:
        return server
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:
            os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    # The keeper ignores these for itself; the server wants its own handling.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 no shell is the point
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def announce(run_dir: str, server: int) -> None:
    """The owner learns the server's process id from here; renamed into place so that it never reads half."""
    path = os.path.join(run_dir, PROCESS_ID_FILE)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(str(server))
    os.replace(path + ".new", path)


def owner_ended_first(ended: int) -> bool:
    """Waits until the owner closes our standard input (or dies), or else the server ends by itself."""
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if 0 in readable and not os.read(0, 64):
            return True
        if ended in readable:
            return False


def end(server: int, ended: int) -> int:
    """Ask, then insist. The server flushes its log to disk when asked."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGTERM)
        # A stopped process (SIGSTOP) sees the request only when it runs again.
        os.kill(server, signal.SIGCONT)
    readable, _, _ = select.select([ended], [], [], KILL_AFTER_SECONDS)
    if not readable:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


def main() -> int:
    run_dir, discard_dir, *command = sys.argv[1:]
    # Terminal signals go to the owner, which decides; nothing but the owner's end ends us.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The server alone holds the writing end: its end, of whatever cause, is an end of file on the other one.
    ended, held_by_server = os.pipe()
    os.set_inheritable(held_by_server, True)
    server = run_server(command)
    os.close(held_by_server)
    announce(run_dir, server)
    owner_ended = owner_ended_first(ended)
    status = end(server, ended)
    if owner_ended:
        # Else the owner wants to read the server's log, and cleans up itself.
        shutil.rmtree(run_dir, ignore_errors=True)
        if discard_dir:
            shutil.rmtree(discard_dir, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
