"""`routebook pipeline serve`: the warm session. `warm.py` is its client, and describes what both sides exchange.

Commands run one at a time, in the main thread: they write to `sys.stdout`, read `os.environ`, and use the whole
machine anyway. A command that has to wait for long starts a Spark of its own instead.
"""

import io
import json
import os
import queue
import signal
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from routebook_pipeline.cli import warm
from routebook_pipeline.cli.options import DURATION, conf_option, debug_option, master_option, parse_conf
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import UnreachableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_WAITING: Final = 8
"""Commands that may wait for their turn. Each more is refused, and starts a Spark of its own."""
REQUEST_TIMEOUT_S: Final = 5.0
BUFFER_CHARACTERS: Final = 1 << 16
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command("serve", short_help="Keep Spark ready, so that questions are answered at once.")
@click.option("--idle", type=DURATION, default="1h", show_default=True, help="End after this long without a command.")
@master_option
@conf_option
@debug_option
def command(*, idle: float, master: str, conf: tuple[str, ...], debug: bool) -> int:
    """Keep a warm session: one Spark that the other commands of this user use instead of starting their own.

    Answers and exit codes are the same. `run`, `route-at`, `report` and `backfill` use it when it is there, unless they
    have --cold, --master, --conf or --debug. It ends when it is idle, or with SIGTERM after the running command.

    \b
    routebook pipeline serve &
    routebook pipeline run availability
    """
    from routebook_pipeline.cli import spark as spark_module

    path = warm.socket_path()
    settings = parse_conf(conf)
    with listening_socket(path) as listener, Progress() as progress:
        session = spark_module.start_session(master, settings, progress, debug=debug)
        progress.clear()
        warm.is_session, spark_module.kept_session = True, session
        try:
            with stop_on_signals() as stop:
                WarmSession(session, listener, stop).run(idle, progress)
        finally:
            warm.is_session, spark_module.kept_session = False, None
            with suppress(Exception):
                session.stop()
    return 0


@contextmanager
def listening_socket(path: Path) -> Iterator[socket.socket]:
    """Only this user can connect. UnreachableError if another session listens there."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _answers(path):
            raise UnreachableError(
                f"A warm session listens at {path} already. Use it, end it with SIGTERM, or name another path in "
                f"{warm.SOCKET_VARIABLE}."
            )
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(MAX_WAITING)
    except OSError as error:
        listener.close()
        raise UnreachableError(
            f"The warm session cannot listen at {path}: {error}. Name another path in {warm.SOCKET_VARIABLE}."
        ) from error
    try:
        yield listener
    finally:
        path.unlink(missing_ok=True)
        listener.close()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(warm.CONNECT_TIMEOUT_S)
        return probe.connect_ex(str(path)) == 0


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """To be entered after Spark has started, which installs a handler for SIGINT."""
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class CommandCancelled(BaseException):
    """The client of the running command is gone. Like KeyboardInterrupt, it is no `Exception`."""


class WarmSession:
    def __init__(self, spark: "SparkSession", listener: socket.socket, stop: threading.Event) -> None:
        self._spark, self._listener, self._stop = spark, listener, stop
        self._waiting: queue.Queue[tuple[socket.socket, warm.Request]] = queue.Queue(MAX_WAITING)
        self._running: socket.socket | None = None
        """The connection of the command that runs now, and may be cancelled."""
        self._environment = dict(os.environ)

    def run(self, idle_s: float, progress: Progress) -> None:
        """Returns when no command has come for `idle_s`, or after a signal. UnreachableError if Java has ended."""
        signal.signal(signal.SIGUSR1, self._cancel)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        progress.log(f"warm session ready at {self._listener.getsockname()}")
        left_s = idle_s
        while not self._stop.is_set():
            try:
                connection, request = self._waiting.get(timeout=min(left_s, 0.5))
            except queue.Empty:
                left_s -= 0.5
                if left_s <= 0:
                    progress.log("warm session idle: ending")
                    return
                continue
            with connection:
                self._serve(connection, request)
            left_s = idle_s
            self._check_java()

    def _check_java(self) -> None:
        try:
            self._spark.conf.get("spark.app.name")
        except Exception as error:
            raise UnreachableError("Java ended during a command, so the warm session ends too.") from error

    def _accept(self) -> None:
        """Reads requests, in a thread."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(REQUEST_TIMEOUT_S)
            if not _is_same_user(connection):
                connection.close()
                return
            request = _read_request(connection)
            refusal = self._refusal(request)
            if not refusal:
                try:
                    self._waiting.put_nowait((connection, request))
                except queue.Full:
                    refusal = f"{MAX_WAITING} commands wait for it already"
            if refusal:
                _send(connection, refused=refusal)
                connection.close()
        except (OSError, ValueError, TypeError):
            # The client has closed the connection, or sent something that is not a request.
            connection.close()

    def _refusal(self, request: warm.Request) -> str:
        if request.version != warm.package_version():
            return f"it has version {warm.package_version()} and the command {request.version}"
        if request.credentials != warm.cloud_credentials(self._environment):
            return "its environment has other credentials for object stores"
        return ""

    def _serve(self, connection: socket.socket, request: warm.Request) -> None:
        connection.settimeout(None)
        if _is_gone(connection):
            return
        try:
            _send(connection, started=True)
        except OSError:
            return
        threading.Thread(target=self._watch, args=(connection,), daemon=True).start()
        out = _Output(connection, "out", is_terminal=request.terminals.get("out", False))
        err = _Output(connection, "err", is_terminal=request.terminals.get("err", False))
        code = None
        try:
            self._running = connection
            with _environment_of(request), redirect_stdout(out), redirect_stderr(err):
                code = _run(request.arguments)
        except (CommandCancelled, OSError):
            pass
        finally:
            self._running = None
        if code is None:
            self._spark.sparkContext.cancelAllJobs()
            return
        with suppress(OSError):
            out.send()
            err.send()
            _send(connection, code=code)

    def _watch(self, connection: socket.socket) -> None:
        """Cancels the command when its client ends. A client sends nothing after its request."""
        with suppress(OSError):
            connection.recv(1)
        if self._running is connection:
            self._spark.sparkContext.cancelAllJobs()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _cancel(self, _: int, __: FrameType | None) -> None:
        if self._running is not None and _is_gone(self._running):
            self._running = None
            raise CommandCancelled


def _run(arguments: list[str]) -> int:
    from routebook_pipeline.cli.main import run_command

    try:
        return run_command("routebook pipeline", arguments)
    except Exception:
        # A bug. As in a process of its own, the stack trace is shown and the exit code is 1.
        import traceback

        traceback.print_exc()
        return 1


def _is_same_user(connection: socket.socket) -> bool:
    """The socket's permissions say the same, but not on every system."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def _read_request(connection: socket.socket) -> warm.Request:
    text = b""
    while not text.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part or len(text) + len(part) > warm.MAX_LINE_BYTES:
            raise ValueError("no request")
        text += part
    return warm.Request(**json.loads(text))


def _send(connection: socket.socket, **message: Any) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _is_gone(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def _environment_of(request: warm.Request) -> Iterator[None]:
    """The client's working directory, and the variables that commands read."""
    before, folder = dict(os.environ), os.getcwd()
    with ExitStack() as restore:
        restore.callback(_set_environment, before)
        restore.callback(os.chdir, folder)
        ours = {name: value for name, value in before.items() if not name.startswith("ROUTEBOOK_")}
        _set_environment(ours | request.environment)
        os.chdir(request.folder)
        yield


def _set_environment(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


class _Output(io.TextIOBase):
    """Standard output or standard error of the client."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, connection: socket.socket, name: str, *, is_terminal: bool) -> None:
        self._connection, self._name, self._is_terminal = connection, name, is_terminal
        self._buffer: list[str] = []
        self._size = 0
        # Progress is shown by a thread.
        self._lock = threading.Lock()

    def isatty(self) -> bool:
        return self._is_terminal

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        # Click finds out by writing bytes whether a stream is binary.
        if not isinstance(text, str):
            raise TypeError("this is a text stream")
        with self._lock:
            self._buffer.append(text)
            self._size += len(text)
            is_full = self._size >= BUFFER_CHARACTERS
        if is_full:
            self.send()
        return len(text)

    def flush(self) -> None:
        """`click.echo` flushes after every line. Answers of many lines are sent together; notes are sent at once."""
        if self._is_terminal or self._name == "err":
            self.send()

    def send(self) -> None:
        with self._lock:
            text, self._buffer, self._size = "".join(self._buffer), [], 0
            if text:
                _send(self._connection, **{self._name: text})
