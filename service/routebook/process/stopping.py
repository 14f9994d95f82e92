"""The wish to stop: the first signal asks, the second forces.

Every wait of a stop goes through `within`, so that each has a deadline and none outlives a second signal.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

_log = logging.getLogger(__name__)

# SIGHUP: a closed terminal ends `up` like Ctrl-C does.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self._signals = 0
        self._on_force: list[Callable[[], None]] = []

    def ask(self, reason: str) -> None:
        if not self.asked.is_set():
            _log.info("Stopping: %s.", reason)
            self.asked.set()

    def force(self, reason: str) -> None:
        if not self.forced.is_set():
            _log.warning("Forced (%s): what is under way is cut off.", reason)
            self.asked.set()
            self.forced.set()
            for callback in self._on_force:
                callback()

    def on_force(self, callback: Callable[[], None]) -> None:
        self._on_force.append(callback)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Under nohup a closed terminal is to be ignored.
        signals = [one for one in _SIGNALS if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
        for one in signals:
            loop.add_signal_handler(one, self._signalled, one)
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)

    def _signalled(self, one: signal.Signals) -> None:
        self._signals += 1
        if self._signals == 1:
            self.ask(f"signal {one.name}; a second one forces")
        else:
            self.force(f"signal {one.name} is the second one")

    async def within(self, seconds: float, work: Coroutine[Any, Any, Any], what: str) -> bool:
        """False when the deadline passed or a second signal came first: then the work is cancelled."""
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self.forced.wait())
        try:
            await asyncio.wait({task, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
            _log.warning("%s was cut off.", what)
            return False
        if task.exception() is not None:
            _log.error("%s failed.", what, exc_info=task.exception())
            return False
        return True
