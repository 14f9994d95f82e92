"""The folders a store server of ours works in, and the lock that keeps a data folder to one server."""

import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import IO

from routebook.errors import SettingsError

LOCK_FILE = "store.lock"
MAX_SOCKET_PATH_BYTES = 100
"""104 on macOS, 108 on Linux, the ending zero included."""
OWNER_GONE_WAIT_SECONDS = 20.0
POLL_SECONDS = 0.005


def make_data_folder(folder: Path) -> Path:
    """Readable by its owner only."""
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"The data folder {folder} cannot be made: {error.strerror}.",
            advice="Name another one with --data-dir.",
        ) from error
    return folder


def make_throw_away_folder() -> Path:
    """Of data that nobody wants to keep."""
    return Path(tempfile.mkdtemp(prefix="routebook-data-"))


def make_run_folder(socket_file: str) -> Path:
    """0700, and short enough for the path of the socket in it."""
    folder = Path(tempfile.mkdtemp(prefix="routebook-"))
    if len(os.fsencode(folder / socket_file)) > MAX_SOCKET_PATH_BYTES:
        folder.rmdir()
        # The only short one there is; mkdtemp makes it safe.
        folder = Path(tempfile.mkdtemp(prefix="routebook-", dir="/tmp"))
    return folder


def lock_folder(folder: Path) -> IO[str]:
    """Exclusive, and told to others by the owner's process id inside.

    After a kill -9 of the owner its server needs a moment to write its last data: then wait, since nobody
    can stop it faster.
    """
    lock = (folder / LOCK_FILE).open("a+")
    deadline = time.monotonic() + OWNER_GONE_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            owner = _owner(lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES) or _lives(owner) or time.monotonic() > deadline:
                lock.close()
                raise SettingsError(
                    f"The data folder {folder} is already served by another process ({owner or 'unknown'}).",
                    advice="Stop that one, or give this one a folder of its own with --data-dir.",
                ) from error
            time.sleep(POLL_SECONDS)
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _owner(lock: IO[str]) -> int:
    lock.seek(0)
    text = lock.read()
    return int(text) if text.isdigit() else 0


def _lives(process_id: int) -> bool:
    if process_id == 0:
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
