"""Log lines: text for people, JSON for collectors, without secrets, and limited in number.

Lines go to standard error; standard output belongs to the answers of commands. A peer, a broken network or a defect
can cause the same line a thousand times a second, so each kind of line has a limit per period, and the number of
suppressed lines is logged. A kind is one log statement at one level, whatever its values. Administrative actions are
always logged. Lines that peers cause (`PeerLog`) have a lower limit, and their values are truncated.

A thread writes the lines (`LineWriter`), because whatever reads them may be slow, and the event loop must not wait.
"""

import json
import logging
import os
import re
import select
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol, TextIO
from urllib.parse import unquote

from routebook.errors import RoutebookError
from routebook.settings import LiveSettings, Settings
from routebook.settings.kinds import MASK

LINES_PER_PERIOD: Final = 1_000
"""A fleet of a thousand brokers that registers again is still logged in full."""
TRACES_PER_PERIOD: Final = 20
PERIOD_S: Final = 10.0

_OWN = "routebook.log"
_AUDIT = "routebook.audit"

_Kind = tuple[str, int, object]


class _Suppressed:
    lines = 0


def suppressed_lines() -> int:
    """Number of suppressed lines of this process; logging is global to a process."""
    return _Suppressed.lines


def _count_suppressed() -> None:
    _Suppressed.lines += 1


class _Lines(Protocol):
    def write(self, text: str, /) -> object: ...


class LimitedHandler(logging.StreamHandler[_Lines]):
    def __init__(self, stream: _Lines) -> None:
        super().__init__(stream)
        self._period_began = float("-inf")
        self._written: Counter[_Kind] = Counter()
        self._missing: Counter[_Kind] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock, like all of `logging`."""
        if record.name == _OWN:
            super().emit(record)
            return
        now = time.monotonic()
        if now - self._period_began >= PERIOD_S:
            self._report_missing()
            self._period_began = now
            self._written.clear()
        if self._may_be_written(record):
            super().emit(record)

    def close(self) -> None:
        self._report_missing()
        super().close()

    def _may_be_written(self, record: logging.LogRecord) -> bool:
        if record.name == _AUDIT and record.levelno < logging.WARNING:
            return True
        kind = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else type(record.msg))
        self._written[kind] += 1
        if self._written[kind] <= (TRACES_PER_PERIOD if record.exc_info else LINES_PER_PERIOD):
            return True
        self._missing[kind] += 1
        _count_suppressed()
        return False

    def _report_missing(self) -> None:
        missing, self._missing = self._missing, Counter()
        for (name, level, message), lines in missing.items():
            text = "%d lines like this one of %s were suppressed in the last seconds: %s"
            self.handle(logging.LogRecord(_OWN, level, __file__, 0, text, (lines, name, message), None))


MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
LAST_LINES_S: Final = 1.0
"""At the end of the process, how long it waits until the last lines are written."""


class LineWriter:
    """Writes to a file descriptor in a thread. `write` never waits; what exceeds `MAX_WAITING_BYTES` is suppressed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._suppressed = 0
        self._changed = threading.Condition()
        self._is_closed = False
        # A daemon, so that lines that are never read do not prevent the end of the process.
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        line = text.encode(errors="backslashreplace")
        with self._changed:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self._suppressed += 1
                _count_suppressed()
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify()

    def take_suppressed(self) -> int:
        """The lines suppressed since the last call; 0 until there is room for a line that says so."""
        with self._changed:
            if self._waiting:
                return 0
            suppressed, self._suppressed = self._suppressed, 0
            return suppressed

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(LAST_LINES_S)

    def _run(self) -> None:
        # One by one: other workers write to the same pipe, and only short writes are not mixed with theirs. Directly to
        # the descriptor: a buffer's lock must not be held while the interpreter ends.
        while line := self._next_line():
            rest = memoryview(line)
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    select.select((), (self._descriptor,), ())
                except OSError:
                    break  # There is no other place to report it.

    def _next_line(self) -> bytes:
        """Empty when the writer is closed and everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return b""
            line = self._waiting.popleft()
            self._waiting_bytes -= len(line)
            return line


class BackgroundHandler(LimitedHandler):
    def __init__(self, descriptor: int) -> None:
        self._writer = LineWriter(descriptor)
        super().__init__(self._writer)

    def emit(self, record: logging.LogRecord) -> None:
        if suppressed := self._writer.take_suppressed():
            text = "%d lines were suppressed, because the lines before them could not be written in time."
            self.handle(logging.LogRecord(_OWN, logging.WARNING, __file__, 0, text, (suppressed,), None))
        super().emit(record)

    def close(self) -> None:
        super().close()
        self._writer.close()


_OURS = "routebook"
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:@/]*:)[^\s@]+(@)", re.IGNORECASE)
_NAMED_SECRET = re.compile(
    r"""((?:\b|_)(?:authorization|access_?key|secret_?key|signature|admin_?token|token)['"]?\s*[:=]\s*['"]?)"""
    r"""(?:(?:bearer|basic)\s+)?[^\s'",;&(){}<>]+""",
    re.IGNORECASE,
)
"""A field of a request with its value, as a header, a query, a JSON object or a `repr` has it."""
_BEARER = re.compile(r"(\bbearer\s+)[^\s'\",;]{8,}", re.IGNORECASE)
_EXCEPTION_IN_TASK = re.compile(r"(\bexception=[\w.]+)\(.*\)(?=>)", re.DOTALL)
_SERVES_PEERS = frozenset({"asyncio", "uvicorn.error", "routebook.remoting.port", "routebook.listeners.acceptor"})
"""Loggers of unexpected errors in requests. The messages of such errors may quote a request, as those of ValueError and
KeyError do, so only their types and places are logged.
"""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, and those that change the direction of text."""
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class _Masked(logging.Formatter):
    """Masks the configured secrets, passwords in URLs, and values of fields that carry secrets in requests, in every
    line, tracebacks included.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = sorted({one for one in secrets if one}, key=len, reverse=True)

    def clean(self, text: str) -> str:
        text = _URL_PASSWORD.sub(rf"\g<1>{MASK}\g<2>", text)
        text = _NAMED_SECRET.sub(rf"\g<1>{MASK}", text)
        text = _BEARER.sub(rf"\g<1>{MASK}", text)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


class TextFormat(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        # Values are masked before they are quoted, because quoting changes a secret that contains a quotation mark.
        extras = [f"{key}={_word(self.clean(str(value)))}" for key, value in _extras(record).items()]
        words = [_one_line(_message(record)), *extras]
        text = self.clean(" ".join(words) + _trace(record, "\n"))
        return f"{_timestamp(record)} {record.levelname.lower():7} {text}"


class JsonFormat(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(_message(record)),
        }
        fields |= {key: self._value(value) for key, value in _extras(record).items()}
        trace = _trace(record, "")
        if trace:
            fields["trace"] = self.clean(trace)
        return _json(fields)

    def _value(self, value: object) -> object:
        """Masked before it is quoted, because quoting changes a secret that contains a quotation mark."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.clean(str(value))


def start_logs(live: LiveSettings, stream: TextIO | None = None, *, worker: int | None = None) -> None:
    """Sets up logging for the whole process. The level follows the setting; `worker` labels the lines of a worker."""
    settings = live.current
    form = JsonFormat if settings.log_format == "json" else TextFormat
    handler = LimitedHandler(stream) if stream else BackgroundHandler(_standard_error())
    handler.setFormatter(form(secrets_of(settings)))
    if worker is not None:
        handler.addFilter(partial(_mark_with_worker, worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Only warnings of libraries: their everyday lines would hide ours.
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    _set_level(settings)
    live.subscribe(_set_level)


def _standard_error() -> int:
    """Python has no `sys.stderr` where the process was started without one; its number may belong to a socket then."""
    return sys.stderr.fileno() if sys.stderr else os.open(os.devnull, os.O_WRONLY)


def secrets_of(settings: Settings) -> list[str]:
    """The texts that no line may contain."""
    _, _, rest = settings.redis_url.partition("://")
    credentials = rest.partition("?")[0].rpartition("@")[0]
    queried = re.findall(r"[?&][^=&]*passw[^=&]*=([^&]*)", settings.redis_url, re.IGNORECASE)
    passwords = [credentials.partition(":")[2], *queried]
    return [settings.admin_token, settings.tls_key_password, *passwords, *map(unquote, passwords)]


def _mark_with_worker(worker: int, record: logging.LogRecord) -> bool:
    record.worker = worker
    return True


def _set_level(settings: Settings) -> None:
    logging.getLogger(_OURS).setLevel(settings.log_level.upper())


def _timestamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}


def _word(value: object) -> str:
    text = str(value)
    is_plain = text and not any(letter in text for letter in ' "=') and not _CONTROL.search(text)
    return text if is_plain else _json(text)


def _json(value: object) -> str:
    """Keeps text readable, and escapes characters that could control a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _one_line(message: str) -> str:
    """Escapes control characters: a line feed in a peer's text must not begin a line that looks like ours."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


def _message(record: logging.LogRecord) -> str:
    """asyncio shows a task that failed with its exception."""
    text = record.getMessage()
    return _EXCEPTION_IN_TASK.sub(r"\g<1>", text) if record.name == "asyncio" else text


def _trace(record: logging.LogRecord, before: str) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    lines = _lines_without_messages(error) if record.name in _SERVES_PEERS else traceback.format_exception(error)
    return before + "".join(lines).rstrip()


def _lines_without_messages(error: BaseException) -> list[str]:
    """Like a traceback. Messages of our own errors and of the operating system are kept: they quote no secret."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        is_safe = isinstance(current, RoutebookError | OSError)
        last = traceback.format_exception_only(current) if is_safe else [f"{type(current).__qualname__}\n"]
        lines = [*traceback.format_tb(current.__traceback__), *last, *(["caused:\n"] if lines else []), *lines]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return lines


PEER_LINES_PER_PERIOD: Final = 100
PEER_PERIOD_S: Final = 10.0
VALUE_CHARACTERS: Final = 300


class PeerLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._period_began = float("-inf")
        self._lines = 0
        self._suppressed = 0

    def log(self, level: int, text: str, *values: object) -> None:
        if not self._log.isEnabledFor(level):
            return
        now = time.monotonic()
        if now - self._period_began >= PEER_PERIOD_S:
            if self._suppressed:
                self._log.warning("%d lines about peers were suppressed in the last seconds.", self._suppressed)
            self._period_began, self._lines, self._suppressed = now, 0, 0
        if self._lines >= PEER_LINES_PER_PERIOD:
            self._suppressed += 1
            _count_suppressed()
            return
        self._lines += 1
        self._log.log(level, text, *map(_truncate, values))


def _truncate(value: object) -> str:
    text = str(value)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
