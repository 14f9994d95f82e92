"""So many lines of one kind, and no more: what a peer, a sick network or a defect can cause a thousand times a second
is written some of the times, and how many were left out is written too.

A kind is what one place in the code says, at one level, whatever the values. What administrators did is written always.
"""

import logging
import time
from collections import Counter
from typing import Final, TextIO

LINES_A_PERIOD: Final = 1_000
"""A fleet of a thousand brokers that registers anew is still written in full."""
TRACES_A_PERIOD: Final = 20
PERIOD_S: Final = 10.0

_OWN = "routebook.log"
_AUDIT = "routebook.audit"

_Kind = tuple[str, int, object]


class _LeftOut:
    lines = 0


def left_out() -> int:
    """Lines of this process that were not written. Logging is the process's, and so is this number."""
    return _LeftOut.lines


def leave_out(lines: int = 1) -> None:
    """Also for those who bound their lines more tightly, and say so themselves."""
    _LeftOut.lines += lines


class BoundedHandler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._period_began = float("-inf")
        self._written: Counter[_Kind] = Counter()
        self._missing: Counter[_Kind] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Under the handler's lock, as all of `logging`."""
        if record.name == _OWN:
            super().emit(record)
            return
        now = time.monotonic()
        if now - self._period_began >= PERIOD_S:
            self._tell_missing()
            self._period_began = now
            self._written.clear()
        if self._may_be_written(record):
            super().emit(record)

    def close(self) -> None:
        self._tell_missing()
        super().close()

    def _may_be_written(self, record: logging.LogRecord) -> bool:
        if record.name == _AUDIT and record.levelno < logging.WARNING:
            return True
        kind = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else type(record.msg))
        self._written[kind] += 1
        if self._written[kind] <= (TRACES_A_PERIOD if record.exc_info else LINES_A_PERIOD):
            return True
        self._missing[kind] += 1
        leave_out()
        return False

    def _tell_missing(self) -> None:
        missing, self._missing = self._missing, Counter()
        for (name, level, said), lines in missing.items():
            text = "%d lines like this one of %s were left out in the last seconds: %s"
            self.handle(logging.LogRecord(_OWN, level, __file__, 0, text, (lines, name, said), None))
