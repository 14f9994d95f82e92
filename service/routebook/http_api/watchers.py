"""All open watches of a worker: how many there may be, and how they are told to end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from routebook.http_api import problems
from routebook.http_api.problems import Problem
from routebook.observability.metrics import Metrics

AT_MOST: Final = 1000
"""A watch holds a connection, a queue of events and up to 64 KiB of unsent bytes: 100 MB at the very
worst.
"""


class Watchers:
    def __init__(self, metrics: Metrics, *, at_most: int = AT_MOST) -> None:
        self.stopping = asyncio.Event()
        self._metrics = metrics
        self._at_most = at_most
        self._open = 0

    def check_room(self) -> None:
        if self.stopping.is_set():
            raise Problem(problems.BUSY, "This worker is about to stop.", advice="Connect again.")
        if self._open >= self._at_most:
            raise Problem(
                problems.BUSY,
                f"This worker has {self._open} watches, which is all it takes.",
                advice="Ask another worker, or close watches that nobody reads.",
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._open += 1
        self._metrics.watcher_came()
        try:
            yield
        finally:
            self._open -= 1
            self._metrics.watcher_left()
