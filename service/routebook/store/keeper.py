"""Runs one store server, and stops it when its owner has ended.

Run as a program of its own (`embedded` starts it), standard library only: `python -I -S keeper.py RUN_DIR
DISCARD_DIR SERVER ARG…`

Why a process in between: an owner that is killed with -9 runs no cleanup, and the alternatives are incomplete. Linux's
parent-death signal fires when the *thread* that forked ends, and macOS has none; a function between fork and exec is
unsafe when the owner has threads. Here the owner holds the writing end of the keeper's standard input. Its death, for
any reason, is an end of file there, and the owner closes it to ask for an orderly stop.
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
    """Fork and exec. The keeper has one thread, so the death signal below means the whole process."""
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
    # The keeper ignores this signal; the server needs its default handling.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - without a shell on purpose
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def announce(run_dir: str, server: int) -> None:
    """Writes the server's process id to a file for the owner, and renames it into place when it is complete."""
    path = os.path.join(run_dir, PROCESS_ID_FILE)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(str(server))
    os.replace(path + ".new", path)


def owner_ended_first(ended: int) -> bool:
    """Waits until the owner closes standard input or dies, or until the server ends by itself."""
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if 0 in readable and not os.read(0, 64):
            return True
        if ended in readable:
            return False


def end(server: int, ended: int) -> int:
    """Asks the server to stop, which makes it write its data to disk, and kills it if it does not."""
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
    # Terminal signals are for the owner. Only the end of the owner or of the server ends the keeper.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Only the server holds the writing end of this pipe, so its end, for any reason, is an end of file.
    ended, held_by_server = os.pipe()
    os.set_inheritable(held_by_server, True)
    server = run_server(command)
    os.close(held_by_server)
    announce(run_dir, server)
    owner_ended = owner_ended_first(ended)
    status = end(server, ended)
    if owner_ended:
        # Otherwise the owner reads the server's log first, and cleans up itself.
        shutil.rmtree(run_dir, ignore_errors=True)
        if discard_dir:
            shutil.rmtree(discard_dir, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
