"""One look at a broker's own address, when its last connection was lost: does anybody accept there?

What the loss of a broker's last connection means.

Apache's name server removes the broker at once. With many workers that would be wrong when a worker goes, or a balancer
restarts; waiting for its timeout would be late when the broker is dead. So the loss begins a grace. Within it the
worker dials the broker's own address, once:

    refused     nobody listens there: removed when the grace ends
    accepted    it lives; its deadline decides
    silent      removed too, unless so many sessions ended lately that it is the network that is ill: then its deadline
                decides

and whatever was found, a removal names the stay it is about, and the script refuses it if anybody holds a session of it
again. What comes in between (the store is away, the worker leaves) is no verdict: the loss is told anew, or the leader
finds it in the store and looks into it.
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
from routebook.registry.departures import Departures
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.sessions import LostConnection, count_sessions, resolve_lost_connections

OUR_TROUBLE: Final = frozenset(
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
"""Errors that say something of this process or host, and nothing of the broker."""


class Look(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer in time, or no way there."""
    UNDECIDED = "undecided"
    """It could not be asked, for a reason of our own."""


async def dial(address: str, timeout_s: float) -> Look:
    """Connects and says nothing. Of several addresses behind a name one that accepts is enough."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            return await _dial_all(host.strip("[]"), int(port))
    except TimeoutError:
        return Look.SILENT


async def _dial_all(host: str, port: int) -> Look:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return Look.SILENT if error.errno == socket.EAI_NONAME else Look.UNDECIDED
    except (OSError, UnicodeError):
        return Look.UNDECIDED
    looks = set[Look]()
    for family, kind, protocol, _, where in found:
        look = await _dial_one(family, kind, protocol, where)
        if look is Look.ACCEPTED:
            return look
        looks.add(look)
    if looks == {Look.REFUSED}:
        return Look.REFUSED
    return Look.SILENT if Look.UNDECIDED not in looks else Look.UNDECIDED


async def _dial_one(family: int, kind: int, protocol: int, where: Any) -> Look:
    try:
        with socket.socket(family, kind, protocol) as one:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, where)
    except ConnectionRefusedError:
        return Look.REFUSED
    except OSError as error:
        return Look.UNDECIDED if error.errno in OUR_TROUBLE else Look.SILENT
    return Look.ACCEPTED


_log = logging.getLogger(__name__)

DIALS_AT_A_TIME: Final = 128
DIAL_AFTER: Final = 1 / 3
"""Of the grace: a process that dies closes its listener and its connections in any order, and a network that blinks
is over its blink."""
LEAST_DIAL_S: Final = 1.0
"""For those that had to wait for their turn, or for a leader that finds a grace already over: one repeated SYN."""
COUNT_KEPT_S: Final = 0.25
ALARM_PERIOD_S: Final = 60.0
LOSSES_PER_CALL: Final = 500
RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Share:
    """Of this worker's own sessions: how many ended lately, and how many there were."""

    ended: int
    total: int


class LostConnections:
    def __init__(
        self,
        namespace: Namespace,
        live: LiveSettings,
        departures: Departures,
        metrics: Metrics,
        *,
        worker: str,
        own_share: Callable[[float], Share],
        tell_again: Callable[[LostConnection], None],
    ) -> None:
        """`own_share` is asked with a number of seconds; `tell_again` begins anew with a loss that could not be looked
        into to its end.
        """
        self._namespace = namespace
        self._live = live
        self._departures = departures
        self._metrics = metrics
        self._caller = Caller(worker)
        self._own_share = own_share
        self._tell_again = tell_again
        self._looks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(DIALS_AT_A_TIME)
        self._settled: list[LostConnection] = []
        self._some_settled = asyncio.Event()
        self._verdict: tuple[float, bool] = (0.0, False)
        self._next_alarm = 0.0
        self._stopped = False

    def look_into(self, losses: Sequence[LostConnection], *, grace_over: bool = False) -> None:
        """From now on, each for itself. `grace_over`: it had its time with a worker that died."""
        if self._stopped:
            return
        grace_s = self._live.current.connection_grace_ms / 1000
        for loss in losses:
            task = asyncio.create_task(self._look_into(loss, grace_s, grace_over=grace_over))
            self._looks.add(task)
            task.add_done_callback(self._look_ended)

    def stop(self) -> None:
        """Nobody is removed any more; the leader takes over what was begun."""
        self._stopped = True
        for task in self._looks:
            task.cancel()

    async def run(self) -> None:
        """Tells the store who is not looked into any more."""
        try:
            while True:
                await self._some_settled.wait()
                self._some_settled.clear()
                await self._settle()
        finally:
            self.stop()

    def _look_ended(self, task: asyncio.Task[None]) -> None:
        self._looks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("A lost connection could not be looked into; its broker's deadline decides.", exc_info=error)

    async def _look_into(self, loss: LostConnection, grace_s: float, *, grace_over: bool) -> None:
        try:
            outcome = await self._find_out(loss, grace_s, grace_over=grace_over)
            if outcome in _REMOVING:
                outcome = await self._remove(loss, outcome)
            else:
                self._settled.append(loss)
                self._some_settled.set()
        except StoreError as error:
            _log.debug("The loss of %s waits for the store: %s", loss.instance_name, error)
            self._tell_again(loss)
            return
        self._metrics.lost_connection(outcome)
        _log.info("Lost the last connection of %s (%s): %s.", loss.instance_name, loss.broker, outcome)

    async def _find_out(self, loss: LostConnection, grace_s: float, *, grace_over: bool) -> LossOutcome:
        if grace_s == 0:
            return "removed_at_once"
        grace_ends = time.monotonic() + (0 if grace_over else grace_s)
        if not grace_over:
            await asyncio.sleep(grace_s * DIAL_AFTER)
        async with self._slots:
            look = await dial(loss.address, max(grace_ends - time.monotonic(), LEAST_DIAL_S if grace_over else 0.05))
        await asyncio.sleep(grace_ends - time.monotonic())
        match look:
            case Look.REFUSED:
                return "removed_refused"
            case Look.ACCEPTED:
                return "alive"
            case Look.UNDECIDED:
                return "undecided"
            case Look.SILENT:
                return "mass_disconnect" if await self._is_mass_disconnect(loss, grace_s) else "removed_silent"

    async def _remove(self, loss: LostConnection, outcome: LossOutcome) -> LossOutcome:
        status = await self._departures.add(loss.departure(), self._caller)
        return outcome if status is Status.DONE else "returned"

    async def _is_mass_disconnect(self, loss: LostConnection, grace_s: float) -> bool:
        """From one grace before the loss on: who was cut last has seen the others go before it. This worker's own
        network may be ill while the others' are well, so its own share counts as well.
        """
        looked_at, is_mass_disconnect = self._verdict
        if time.monotonic() - looked_at > COUNT_KEPT_S:
            counts = await count_sessions(self._namespace, loss.lost_ms - int(grace_s * 1000))
            own = self._own_share(2 * grace_s + LEAST_DIAL_S)
            of_all = Share(counts.ended, counts.open + counts.lost)
            is_mass_disconnect = counts.cut_off or self._is_much(of_all) or self._is_much(own)
            self._verdict = time.monotonic(), is_mass_disconnect
            if is_mass_disconnect:
                self._alarm(of_all, own)
        return is_mass_disconnect

    def _is_much(self, share: Share) -> bool:
        settings = self._live.current
        return (
            share.ended >= settings.mass_disconnect_minimum
            and share.ended * 100 >= settings.mass_disconnect_percent * share.total
        )

    def _alarm(self, of_all: Share, own: Share) -> None:
        now = time.monotonic()
        if now < self._next_alarm:
            return
        self._next_alarm = now + ALARM_PERIOD_S
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

    async def _settle(self) -> None:
        while self._settled:
            batch = self._settled[:LOSSES_PER_CALL]
            try:
                await resolve_lost_connections(self._namespace, batch)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                del self._settled[: len(batch)]


_REMOVING: Final = frozenset[LossOutcome]({"removed_at_once", "removed_refused", "removed_silent"})
