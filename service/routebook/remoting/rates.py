"""Requests and lookups per second. Too many requests are answered busy; too many lookups are read more slowly."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from routebook.listeners.peers import REQUEST_BURST_S, Budget, Peer
from routebook.remoting.reply import Reply, too_many_requests
from routebook.remoting.work_queue import SIGNS_OF_LIFE

LONGEST_PAUSE_S: Final = 1.0
"""After this pause the budget of the address is checked again, since its other connections spend it too."""


class RequestRates:
    """Requests other than lookups, of one address and of all. Registrations and heartbeats are never refused."""

    def __init__(self, per_second: int) -> None:
        self._of_all_peers = Budget(per_second, per_second * REQUEST_BURST_S)

    def charge(self, peer: Peer, code: int) -> Reply | None:
        """A reply if there have been too many."""
        now = time.monotonic()
        if not peer.requests.take(1, now) and code not in SIGNS_OF_LIFE:
            return too_many_requests("max_requests_per_second_per_address", peer.requests.per_second)
        if not self._of_all_peers.take(1, now) and code not in SIGNS_OF_LIFE:
            return too_many_requests("max_requests_per_second", self._of_all_peers.per_second)
        return None


class LookupRate:
    """The lookups of one connection, charged to its address once for each batch."""

    def __init__(self, budget: Budget, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Pauses reading until the budget of the address covers the answered lookups."""
        self._budget = budget
        self._pause = pause
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None

    def charge(self, count: int) -> None:
        now = time.monotonic()
        self._budget.charge(count, now)
        if self._timer is None and self._budget.wait_s(now):
            self._pause()
            self._look_again()

    def close(self) -> None:
        self._pause = self._resume = _do_nothing
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        wait_s = self._budget.wait_s(time.monotonic())
        if wait_s:
            self._timer = asyncio.get_running_loop().call_later(min(wait_s, LONGEST_PAUSE_S), self._look_again)
        else:
            self._timer = None
            self._resume()


def _do_nothing() -> None:
    pass


def lookup_rate(peer: Peer, pause: Callable[[], None], resume: Callable[[], None]) -> LookupRate | None:
    """None without a limit, so that a batch of lookups costs nothing more."""
    return LookupRate(peer.lookups, pause, resume) if peer.lookups.per_second else None
