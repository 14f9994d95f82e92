"""What would be said a thousand times a second is said once a minute, with its number."""

import logging
import time

EVERY_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Notice:
    def __init__(self, text: str) -> None:
        """`text` ends in a sentence for people; how often it happened is added."""
        self._text = text
        self._said_at = float("-inf")
        self._since = 0

    def say(self, *values: object) -> None:
        self._since += 1
        now = time.monotonic()
        if now - self._said_at < EVERY_SECONDS:
            return
        times = "" if self._since == 1 else f" ({self._since} times since it was last said)"
        _log.warning(self._text + "%s", *values, times)
        self._said_at, self._since = now, 0
