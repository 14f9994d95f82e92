"""How fast a worker is, measured beside the requests and not in them: a lookup takes a few microseconds, and taking
the time of each would be a good part of that.

Ten times a second a timer is looked at. How late it fires is how long a request waits before it is looked at; and then
the next lookup of each port is to take its own time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from routebook.observability.metrics import Metrics

PERIOD_S: Final = 0.1


class Pace:
    def __init__(self, metrics: Metrics, sample_next: Sequence[Callable[[], None]]) -> None:
        """Each of `sample_next` asks one port for the time of its next lookup."""
        self._metrics = metrics
        self._sample_next = sample_next

    async def run(self) -> None:
        while True:
            due = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._metrics.loop_delay(max(time.monotonic() - due, 0.0))
            for sample in self._sample_next:
                sample()
