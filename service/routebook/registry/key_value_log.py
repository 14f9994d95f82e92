"""Apache's name server logs all key-values after one minute and then every ten; so does the leader, secrets masked."""

import logging
import re
from typing import Final

from routebook.replica.replica import Replica

_log = logging.getLogger(__name__)

FIRST_AFTER_S: Final = 60.0
PERIOD_S: Final = 600.0

_SECRET = re.compile(r"secret|password|passwd|token|credential|access.?key", re.IGNORECASE)


def shown_value(key: str, value: str) -> str:
    """A key-value store takes whatever tools put there; what is called a secret does not reach the log."""
    return "***" if _SECRET.search(key) else value


class KeyValueLog:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._next: float | None = None

    def tell_when_due(self, now: float) -> None:
        if self._next is None:
            self._next = now + FIRST_AFTER_S
        if now < self._next:
            return
        self._next = now + PERIOD_S
        for namespace, values in sorted(self._replica.view.kv.items()):
            for key, value in sorted(values.items()):
                _log.info("key-value %s/%s = %s", namespace, key, shown_value(key, value))
