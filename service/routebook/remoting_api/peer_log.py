"""Log lines that a peer can cause, as many as it likes: cut short, and bounded in number."""

import logging
import time
from typing import Final

from routebook.observability.log_bounds import leave_out

LINES_A_PERIOD: Final = 100
PERIOD_S: Final = 10.0
VALUE_CHARACTERS: Final = 300


class PeerLog:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._period_began = float("-inf")
        self._said = 0
        self._left_out = 0

    def say(self, level: int, text: str, *values: object) -> None:
        if not self._log.isEnabledFor(level):
            return
        now = time.monotonic()
        if now - self._period_began >= PERIOD_S:
            if self._left_out:
                self._log.warning("%d lines about peers were left out in the last seconds.", self._left_out)
            self._period_began, self._said, self._left_out = now, 0, 0
        if self._said >= LINES_A_PERIOD:
            self._left_out += 1
            leave_out()
            return
        self._said += 1
        self._log.log(level, text, *map(_cut, values))


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
