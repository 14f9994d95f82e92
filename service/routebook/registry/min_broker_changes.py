"""Whom to tell that a group's smallest id is another one (905).

The script that makes the change says so to the worker that called it, and to no other: so a receiver is told once,
however many workers there are.
"""

from collections.abc import Callable, Iterable

from routebook.model.min_broker import MinBrokerChange
from routebook.settings.live import LiveSettings

Listener = Callable[[MinBrokerChange], None]


def _nobody(_change: MinBrokerChange) -> None:
    """Without a port there is nobody who could tell brokers anything."""


class MinBrokerChanges:
    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self.listener: Listener = _nobody

    def tell(self, changes: Iterable[MinBrokerChange]) -> None:
        if self._live.current.notify_min_broker_id_changed:
            for change in changes:
                self.listener(change)
