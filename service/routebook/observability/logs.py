"""Log lines: text for people, JSON for collectors; never a secret in either.

Lines go to standard error: standard output belongs to what a command answers.
"""

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Iterable
from functools import partial
from typing import TextIO
from urllib.parse import unquote

from routebook.observability.log_bounds import BoundedHandler
from routebook.settings import LiveSettings, Settings
from routebook.settings.masking import MASK

_OURS = "routebook"
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:@/]*:)[^\s@]+(@)", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class _Masked(logging.Formatter):
    """Takes the configured secrets, and passwords in URLs, out of what is written: out of tracebacks too."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = sorted({one for one in secrets if one}, key=len, reverse=True)

    def clean(self, text: str) -> str:
        text = _URL_PASSWORD.sub(rf"\g<1>{MASK}\g<2>", text)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


class TextFormat(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        words = [_one_line(record.getMessage())] + [f"{key}={_word(value)}" for key, value in _extras(record).items()]
        said = self.clean(" ".join(words) + _trace(record, "\n"))
        return f"{_instant(record)} {record.levelname.lower():7} {said}"


class JsonFormat(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        fields |= {key: self._value(value) for key, value in _extras(record).items()}
        trace = _trace(record, "")
        if trace:
            fields["trace"] = self.clean(trace)
        return json.dumps(fields, ensure_ascii=False)

    def _value(self, value: object) -> object:
        """Cleaned before it is quoted: a secret with a quotation mark looks different afterwards."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.clean(str(value))


def start_logs(live: LiveSettings, stream: TextIO | None = None, *, worker: int | None = None) -> None:
    """For the whole process. The level follows the setting; `worker` marks the lines of one of several."""
    settings = live.current
    form = JsonFormat if settings.log_format == "json" else TextFormat
    handler = BoundedHandler(stream or sys.stderr)
    handler.setFormatter(form(secrets_of(settings)))
    if worker is not None:
        handler.addFilter(partial(_mark_with_worker, worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries speak up when something is wrong; their everyday lines would bury ours.
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    _set_level(settings)
    live.subscribe(_set_level)


def secrets_of(settings: Settings) -> list[str]:
    """The texts that must not appear, whatever else a line says."""
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


def _instant(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD}


def _word(value: object) -> str:
    text = str(value)
    is_plain = text and not any(letter in text for letter in ' "=') and not _CONTROL.search(text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _one_line(message: str) -> str:
    """A peer's words may be in it, such as a key-value: a line feed of theirs must not begin a line that looks ours."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


def _trace(record: logging.LogRecord, before: str) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    return before + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
