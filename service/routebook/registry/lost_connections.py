"""What happens when a broker's last connection is lost.

Apache's name server removes the broker at once. With several workers that would be wrong when a worker stops or a load
balancer restarts. Waiting for the broker's timeout would be late when the broker is dead. So a lost connection begins a
grace. Within it the worker dials the broker's own address once:

    refused     no process listens there: the broker is removed when the grace ends
    accepted    the broker lives: its deadline decides
    silent      removed too, except in a mass disconnect: then its deadline decides

In every case the removal names the incarnation that the connection belonged to, and the script refuses it if that
incarnation has a session again. If the store is away or the worker stops meanwhile, nothing is decided: the loss is
reported again, or the leader finds it in the store and investigates it.
"""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from routebook.errors import StoreError
from routebook.model.names import Caller
from routebook.observability.metrics import LossOutcome, Metrics
from routebook.registry.removals import RemovalQueue
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.sessions import LostConnection, count_sessions, resolve_lost_connections

_log = logging.getLogger(__name__)

MAX_DIALS: Final = 128
"""At a time."""
DIAL_AFTER: Final = 1 / 3
"""The part of the grace before the dial. A dying process closes its listener and its connections in any order, and a
short network failure is over by then.
"""
MIN_DIAL_S: Final = 1.0
"""Time for one repeated SYN, when the grace is nearly over after waiting for other dials, or is over already."""
COUNT_VALID_S: Final = 0.25
REPORT_PERIOD_S: Final = 60.0
LOSSES_PER_CALL: Final = 500
RETRY_S: Final = 0.5

LOCAL_ERRORS: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
        errno.EPERM,
        errno.EAFNOSUPPORT,
    }
)
"""Errors of this process or host, which mean nothing for the broker."""


class DialResult(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer in time, or no route to the host."""
    UNDECIDED = "undecided"
    """A local error prevented the dial."""


async def dial(address: str, timeout_s: float) -> DialResult:
    """Connects and sends nothing. If a name has several addresses, one that accepts is enough."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            return await _dial_all(host.strip("[]"), int(port))
    except TimeoutError:
        return DialResult.SILENT


async def _dial_all(host: str, port: int) -> DialResult:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return DialResult.SILENT if error.errno == socket.EAI_NONAME else DialResult.UNDECIDED
    except (OSError, UnicodeError):
        return DialResult.UNDECIDED
    results = set[DialResult]()
    for family, kind, protocol, _, address in found:
        result = await _dial_one(family, kind, protocol, address)
        if result is DialResult.ACCEPTED:
            return result
        results.add(result)
    if results == {DialResult.REFUSED}:
        return DialResult.REFUSED
    return DialResult.SILENT if DialResult.UNDECIDED not in results else DialResult.UNDECIDED


async def _dial_one(family: int, kind: int, protocol: int, address: Any) -> DialResult:
    try:
        with socket.socket(family, kind, protocol) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, address)
    except ConnectionRefusedError:
        return DialResult.REFUSED
    except OSError as error:
        return DialResult.UNDECIDED if error.errno in LOCAL_ERRORS else DialResult.SILENT
    return DialResult.ACCEPTED


@dataclass(frozen=True, slots=True)
class SessionShare:
    """How many sessions ended within a period, and how many there were."""

    ended: int
    total: int


class LostConnections:
    def __init__(
        self,
        namespace: Namespace,
        live: LiveSettings,
        removals: RemovalQueue,
        metrics: Metrics,
        *,
        worker: str,
        own_share: Callable[[float], SessionShare],
        report_again: Callable[[LostConnection], None],
    ) -> None:
        """`own_share` counts this worker's sessions over the given number of seconds. `report_again` starts over with a
        loss whose investigation failed.
        """
        self._namespace = namespace
        self._live = live
        self._removals = removals
        self._metrics = metrics
        self._caller = Caller(worker)
        self._own_share = own_share
        self._report_again = report_again
        self._investigations: set[asyncio.Task[None]] = set()
        self._dials = asyncio.Semaphore(MAX_DIALS)
        self._resolved: list[LostConnection] = []
        self._has_resolved = asyncio.Event()
        self._last_count: tuple[float, bool] = (0.0, False)
        """When sessions were counted, and whether that was a mass disconnect."""
        self._next_report = 0.0
        self._stopped = False

    def investigate(self, losses: Sequence[LostConnection], *, grace_over: bool = False) -> None:
        """Starts a task for each loss. With `grace_over`, its grace passed at a worker that died."""
        if self._stopped:
            return
        grace_s = self._live.current.connection_grace_ms / 1000
        for loss in losses:
            task = asyncio.create_task(self._investigate(loss, grace_s, grace_over=grace_over))
            self._investigations.add(task)
            task.add_done_callback(self._investigation_ended)

    def stop(self) -> None:
        """Removes no broker from now on. The leader takes over the investigations."""
        self._stopped = True
        for task in self._investigations:
            task.cancel()

    async def run(self) -> None:
        """Reports to the store which losses are resolved without a removal."""
        try:
            while True:
                await self._has_resolved.wait()
                self._has_resolved.clear()
                await self._report_resolved()
        finally:
            self.stop()

    def _investigation_ended(self, task: asyncio.Task[None]) -> None:
        self._investigations.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("Investigating a lost connection failed; the broker's deadline decides.", exc_info=error)

    async def _investigate(self, loss: LostConnection, grace_s: float, *, grace_over: bool) -> None:
        try:
            outcome = await self._decide(loss, grace_s, grace_over=grace_over)
            if outcome in _REMOVING:
                outcome = await self._remove(loss, outcome)
            else:
                self._resolved.append(loss)
                self._has_resolved.set()
        except StoreError as error:
            _log.debug("The loss of %s waits for the store: %s", loss.instance_name, error)
            self._report_again(loss)
            return
        self._metrics.lost_connection(outcome)
        _log.info("Lost the last connection of %s (%s): %s.", loss.instance_name, loss.broker, outcome)

    async def _decide(self, loss: LostConnection, grace_s: float, *, grace_over: bool) -> LossOutcome:
        if grace_s == 0:
            return "removed_at_once"
        grace_ends = time.monotonic() + (0 if grace_over else grace_s)
        if not grace_over:
            await asyncio.sleep(grace_s * DIAL_AFTER)
        async with self._dials:
            timeout_s = max(grace_ends - time.monotonic(), MIN_DIAL_S if grace_over else 0.05)
            result = await dial(loss.address, timeout_s)
        await asyncio.sleep(grace_ends - time.monotonic())
        match result:
            case DialResult.REFUSED:
                return "removed_refused"
            case DialResult.ACCEPTED:
                return "alive"
            case DialResult.UNDECIDED:
                return "undecided"
            case DialResult.SILENT:
                return "mass_disconnect" if await self._is_mass_disconnect(loss, grace_s) else "removed_silent"

    async def _remove(self, loss: LostConnection, outcome: LossOutcome) -> LossOutcome:
        status = await self._removals.add(loss.removal(), self._caller)
        return outcome if status is Status.DONE else "returned"

    async def _is_mass_disconnect(self, loss: LostConnection, grace_s: float) -> bool:
        """Counts from one grace before this loss on, so that the last connection to be cut counts the earlier ones.

        The network of this worker alone may have failed, so its own share is checked as well.
        """
        counted_at, is_mass_disconnect = self._last_count
        if time.monotonic() - counted_at > COUNT_VALID_S:
            counts = await count_sessions(self._namespace, loss.lost_ms - int(grace_s * 1000))
            own = self._own_share(2 * grace_s + MIN_DIAL_S)
            of_all = SessionShare(counts.ended, counts.open + counts.lost)
            is_mass_disconnect = counts.cut_off or self._is_large(of_all) or self._is_large(own)
            self._last_count = time.monotonic(), is_mass_disconnect
            if is_mass_disconnect:
                self._report_mass_disconnect(of_all, own)
        return is_mass_disconnect

    def _is_large(self, share: SessionShare) -> bool:
        settings = self._live.current
        return (
            share.ended >= settings.mass_disconnect_minimum
            and share.ended * 100 >= settings.mass_disconnect_percent * share.total
        )

    def _report_mass_disconnect(self, of_all: SessionShare, own: SessionShare) -> None:
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + REPORT_PERIOD_S
        self._metrics.mass_disconnect()
        _log.error(
            "Mass disconnect: %d sessions of %d ended together (%d of %d on this worker), and brokers do not answer "
            "at their addresses. None of them is removed before its own deadline. Look at the network between "
            "Routebook and the brokers.",
            of_all.ended,
            of_all.total,
            own.ended,
            own.total,
        )

    async def _report_resolved(self) -> None:
        while self._resolved:
            batch = self._resolved[:LOSSES_PER_CALL]
            try:
                await resolve_lost_connections(self._namespace, batch)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                del self._resolved[: len(batch)]


_REMOVING: Final = frozenset[LossOutcome]({"removed_at_once", "removed_refused", "removed_silent"})
