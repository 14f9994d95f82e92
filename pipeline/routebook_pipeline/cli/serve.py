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
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

import click

from routebook_pipeline.answers.catalogue import find_question
from routebook_pipeline.cli import warm
from routebook_pipeline.cli.options import (
    DURATION,
    LAKE_VARIABLE,
    conf_option,
    debug_option,
    master_option,
    parse_conf,
)
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import PipelineError, UnreachableError
from routebook_pipeline.times import parse_when

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_WAITING: Final = 8
"""Commands that may wait for their turn. Each more is refused, and starts a Spark of its own."""
REQUEST_TIMEOUT_S: Final = 5.0
BUFFER_CHARACTERS: Final = 1 << 16
MAX_KEPT_ANSWERS: Final = 64
MAX_KEPT_CHARACTERS: Final = 1 << 20
"""A longer answer is not kept."""
KEPT_S: Final = 30.0
"""How long an answer is kept whose window moves with the clock, or ends after the history."""
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


@dataclass(frozen=True)
class _KeptAnswer:
    lake_version: tuple[int, ...]
    until_s: float
    messages: list[dict[str, Any]]


@dataclass
class KeptAnswers:
    """The answers to shared questions, the most recently used last, each for one version of the lake."""

    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[tuple[str, ...], _KeptAnswer] = field(default_factory=OrderedDict)
    # Read by the threads of connections, written by the main thread.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, arguments: Sequence[str], lake_version: tuple[int, ...]) -> list[dict[str, Any]] | None:
        with self._lock:
            kept = self._kept.get(tuple(arguments))
            if kept is None or kept.lake_version != lake_version or kept.until_s < self.clock():
                return None
            self._kept.move_to_end(tuple(arguments))
            return kept.messages

    def put(self, arguments: Sequence[str], lake_version: tuple[int, ...], out: str, code: int) -> None:
        if not out or len(out) > MAX_KEPT_CHARACTERS:
            return
        until_s = float("inf") if _is_lasting(arguments, out) else self.clock() + KEPT_S
        with self._lock:
            self._kept[tuple(arguments)] = _KeptAnswer(lake_version, until_s, [{"out": out}, {"code": code}])
            self._kept.move_to_end(tuple(arguments))
            while len(self._kept) > MAX_KEPT_ANSWERS:
                self._kept.popitem(last=False)


def _is_lasting(arguments: Sequence[str], out: str) -> bool:
    """Whether the same version of the lake will always give this answer: it is about a fixed window in the past."""
    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    fixed = all(name in given and parse_when(given[name]).ms is not None for name in ("--from", "--to"))
    return fixed and not json.loads(out)["partial"]


def lake_version(arguments: Sequence[str]) -> tuple[int, ...]:
    """The versions of the tables that the answer depends on. UnreachableError if there is no such lake."""
    from routebook_pipeline.lake.tables import Lake

    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    lake = Lake(os.environ.get(LAKE_VARIABLE, ""), given.get("--namespace", "default"))
    return tuple(table.pin().version for table in (lake.changes, lake.pulses) if table.exists())


class CommandCancelled(BaseException):
    """The client of the running command is gone. Like KeyboardInterrupt, it is no `Exception`."""


class WarmSession:
    def __init__(self, spark: "SparkSession", listener: socket.socket, stop: threading.Event) -> None:
        self._spark, self._listener, self._stop = spark, listener, stop
        self._waiting: queue.Queue[tuple[socket.socket, warm.Request]] = queue.Queue(MAX_WAITING)
        self._running: socket.socket | None = None
        """The connection of the command that runs now, and may be cancelled."""
        self._environment = dict(os.environ)
        self._kept = KeptAnswers()
        self._sender: Sender | None = None
        """That of the last command."""

    def run(self, idle_s: float, progress: Progress) -> None:
        """Returns when no command has come for `idle_s`, or after a signal. UnreachableError if Java has ended."""
        try:
            self._run_commands(idle_s, progress)
        finally:
            if self._sender is not None:
                self._sender.wait(REQUEST_TIMEOUT_S)

    def _run_commands(self, idle_s: float, progress: Progress) -> None:
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
            if not refusal and request.shared and self._answer_from_kept(connection, request):
                return
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
        if request.credentials not in (None, warm.cloud_credentials(self._environment)):
            return "its environment has other credentials for object stores"
        if request.shared and (request.arguments[:1] != ["run"] or find_question(request.arguments[1]) is None):
            return "it is not a question"
        return ""

    def _answer_from_kept(self, connection: socket.socket, request: warm.Request) -> bool:
        """In the thread of the connection: a kept answer waits for no turn."""
        try:
            kept = self._kept.get(request.arguments, lake_version(request.arguments))
        except PipelineError:
            # The command will say what is wrong.
            return False
        if kept is None:
            return False
        with connection:
            for message in kept:
                _send(connection, **message)
        return True

    def _serve(self, connection: socket.socket, request: warm.Request) -> None:
        connection.settimeout(None)
        # Another client may have asked the same while this one waited.
        if _is_gone(connection) or (request.shared and self._answer_from_kept(connection, request)):
            connection.close()
            return
        with Sender(connection) as self._sender:
            sender = self._sender
            sender.send(started=True)
            code = self._run_shared(sender, request) if request.shared else self._run_for(connection, sender, request)
            if code is None:
                self._spark.sparkContext.cancelAllJobs()
            else:
                sender.send(code=code)

    def _run_shared(self, sender: "Sender", request: warm.Request) -> int:
        """Does not end with its client: if that could not wait, the answer is there when it asks again."""
        out, err = io.StringIO(), io.StringIO()
        version = None
        with suppress(PipelineError):
            version = lake_version(request.arguments)
        with redirect_stdout(out), redirect_stderr(err):
            code = _run(request.arguments)
        if version is not None and not code:
            self._kept.put(request.arguments, version, out.getvalue(), code)
        sender.send(out=out.getvalue(), err=err.getvalue())
        return code

    def _run_for(self, connection: socket.socket, sender: "Sender", request: warm.Request) -> int | None:
        """None if the client has gone."""
        out = _Output(sender, "out", is_terminal=request.terminals.get("out", False))
        err = _Output(sender, "err", is_terminal=request.terminals.get("err", False))
        try:
            self._running = connection
            # It compares the connection with that of the running command, so it starts after the line above.
            threading.Thread(target=self._watch, args=(connection,), daemon=True).start()
            with _environment_of(request), redirect_stdout(out), redirect_stderr(err):
                code = _run(request.arguments)
        except CommandCancelled:
            return None
        finally:
            self._running = None
        out.send()
        err.send()
        return code

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
        _set_environment(before if request.environment is None else ours | request.environment)
        os.chdir(folder if request.folder is None else request.folder)
        yield


def _set_environment(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


class Sender:
    """Sends messages in a thread of its own, then closes the connection. A client that does not read on, such as one
    whose output is shown by `less`, keeps the session from no other command.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="send", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.put(None)

    def send(self, **message: Any) -> None:
        self._messages.put(message)

    def wait(self, timeout_s: float) -> None:
        """Until everything is sent."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        # Without a client the rest is dropped.
        with self._connection, suppress(OSError):
            while (message := self._messages.get()) is not None:
                _send(self._connection, **message)


class _Output(io.TextIOBase):
    """Standard output or standard error of the client."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, sender: Sender, name: str, *, is_terminal: bool) -> None:
        self._sender, self._name, self._is_terminal = sender, name, is_terminal
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
                self._sender.send(**{self._name: text})
