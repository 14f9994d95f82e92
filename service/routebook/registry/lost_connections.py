"""What happens when a broker's last connection is lost.

Apache's name server removes the broker at once. With several workers that would be wrong when a worker stops or a load
balancer restarts. Waiting for the broker's timeout would be late when the broker is dead. So a lost connection begins a
grace. Within it the worker dials the broker's own address once:

    refused      no process listens there: the broker is removed when the grace ends
    silent       removed too
    accepted     the broker lives: its deadline decides
    not allowed  the address may not be dialled (`dialling`): its deadline decides. An instance that is not established
                 is removed, whatever listens there

In a mass disconnect nothing is removed here: a firewall that rejects connections refuses the dials of healthy brokers
as well. Then their deadlines decide. In every case the removal names the incarnation that the connection belonged to
and the loss. The script refuses it if that incarnation has had a session since, and holds it when too many brokers
would be removed at once. If the store is away or the worker stops meanwhile, nothing is decided: the loss is reported
again, or the leader finds it in the store and investigates it.

When a worker dies, the leader investigates all of its brokers together. The sessions all ended because of the worker,
so their number means nothing. The dials that fail are counted instead.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

from routebook.errors import StoreError
from routebook.model.names import Caller
from routebook.observability.metrics import LossOutcome, Metrics
from routebook.registry.dialling import MIN_DIAL_S, Dialler, DialResult
from routebook.registry.removals import RemovalQueue
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.sessions import LostConnection, SessionCounts, count_sessions, resolve_lost_connections

_log = logging.getLogger(__name__)

DIAL_AFTER: Final = 1 / 3
"""The part of the grace before the dial. A dying process closes its listener and its connections in any order, and a
short network failure often ends within that time.
"""
COUNT_VALID_S: Final = 0.25
REPORT_PERIOD_S: Final = 60.0
LOSSES_PER_CALL: Final = 500
RETRY_S: Final = 0.5


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
        self._dialler = Dialler(live.current.dial_network_list)
        self._resolved: list[LostConnection] = []
        self._has_resolved = asyncio.Event()
        self._last_count: tuple[float, bool] = (0.0, False)
        """When sessions were counted, and whether that was a mass disconnect."""
        self._next_report = 0.0
        self._stopped = False

    def investigate(self, losses: Sequence[LostConnection]) -> None:
        """Starts a task for each loss."""
        grace_s = self._live.current.connection_grace_ms / 1000
        for loss in losses:
            self._start(self._investigate(loss, grace_s))

    def investigate_adopted(self, losses: Sequence[LostConnection]) -> None:
        """The losses of workers that died, which are judged together."""
        if losses:
            self._start(self._investigate_adopted(losses, self._live.current.connection_grace_ms / 1000))

    def _start(self, investigation: Coroutine[None, None, None]) -> None:
        if self._stopped:
            investigation.close()
            return
        task = asyncio.create_task(investigation)
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

    async def _investigate(self, loss: LostConnection, grace_s: float) -> None:
        try:
            outcome = await self._decide(loss, grace_s)
            await self._carry_out(loss, outcome)
        except StoreError as error:
            self._start_over(loss, error)

    async def _decide(self, loss: LostConnection, grace_s: float) -> LossOutcome:
        if grace_s == 0:
            return "removed_at_once"
        outcome = _OUTCOMES[await self._dial_within(loss, grace_s)]
        if outcome == "not_dialled" and not loss.established:
            outcome = "removed_not_dialled"
        if outcome in _REMOVING and await self._is_mass_disconnect(loss, grace_s):
            return "mass_disconnect"
        return outcome

    async def _dial_within(self, loss: LostConnection, grace_s: float) -> DialResult:
        """Ends with the grace, so that the time reveals nothing about the result."""
        grace_ends = time.monotonic() + grace_s
        await asyncio.sleep(grace_s * DIAL_AFTER)
        result = await self._dialler.dial(loss, grace_ends)
        await asyncio.sleep(grace_ends - time.monotonic())
        return result

    async def _investigate_adopted(self, losses: Sequence[LostConnection], grace_s: float) -> None:
        results = await asyncio.gather(*(self._dial_within(loss, grace_s) for loss in losses))
        failed = sum(result in _FAILED for result in results)
        try:
            is_mass_disconnect = await self._have_many_failed(failed) if failed else False
        except StoreError as error:
            for loss in losses:
                self._start_over(loss, error)
            return
        await asyncio.gather(
            *(
                self._end_adopted(loss, result, is_mass_disconnect=is_mass_disconnect)
                for loss, result in zip(losses, results, strict=True)
            )
        )

    async def _end_adopted(self, loss: LostConnection, result: DialResult, *, is_mass_disconnect: bool) -> None:
        """Only a refused dial removes. A broker that does not answer may be cut off from the leader only:
        the worker that it was connected to may have been in another network.
        """
        outcome = _OUTCOMES[result]
        if result in _FAILED and is_mass_disconnect:
            outcome = "mass_disconnect"
        elif result is DialResult.SILENT:
            outcome = "undecided"
        try:
            await self._carry_out(loss, outcome)
        except StoreError as error:
            self._start_over(loss, error)

    async def _have_many_failed(self, failed: int) -> bool:
        counts = await count_sessions(self._namespace, 0)
        share = SessionShare(failed, _number_of_brokers(counts))
        is_mass_disconnect = counts.cut_off or self._is_large(share)
        if is_mass_disconnect:
            self._report_mass_disconnect(share, share)
        return is_mass_disconnect

    async def _carry_out(self, loss: LostConnection, outcome: LossOutcome) -> None:
        if outcome in _REMOVING:
            status = await self._removals.add(loss.removal(), self._caller)
            outcome = outcome if status is Status.DONE else "held" if status is Status.HELD else "returned"
        else:
            self._resolved.append(loss)
            self._has_resolved.set()
        self._metrics.lost_connection(outcome)
        _log.info("Lost the last connection of %s (%s): %s.", loss.instance_name, loss.broker, outcome)

    def _start_over(self, loss: LostConnection, error: StoreError) -> None:
        _log.debug("The loss of %s waits for the store: %s", loss.instance_name, error)
        self._report_again(loss)

    async def _is_mass_disconnect(self, loss: LostConnection, grace_s: float) -> bool:
        """Counts from one grace before this loss on, so that the last connection to be cut counts the earlier ones.

        The network of this worker alone may have failed, so its own share is checked as well.
        """
        counted_at, is_mass_disconnect = self._last_count
        if time.monotonic() - counted_at > COUNT_VALID_S:
            counts = await count_sessions(self._namespace, loss.lost_ms - int(grace_s * 1000))
            own = self._own_share(2 * grace_s + MIN_DIAL_S)
            of_all = SessionShare(counts.ended, _number_of_brokers(counts))
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
            "Mass disconnect: %d sessions of %d ended together (%d of %d on this worker), and brokers cannot be "
            "reached at their addresses. None of them is removed before its own deadline. Look at the network between "
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


def _number_of_brokers(counts: SessionCounts) -> int:
    """Instances that are not established do not make a loss look smaller than it is."""
    return min(counts.open + counts.lost, counts.established)


_FAILED: Final = frozenset({DialResult.REFUSED, DialResult.SILENT})
_OUTCOMES: Final[dict[DialResult, LossOutcome]] = {
    DialResult.ACCEPTED: "alive",
    DialResult.REFUSED: "removed_refused",
    DialResult.SILENT: "removed_silent",
    DialResult.UNDECIDED: "undecided",
    DialResult.NOT_ALLOWED: "not_dialled",
}
_REMOVING: Final = frozenset[LossOutcome](
    {"removed_at_once", "removed_refused", "removed_silent", "removed_not_dialled"}
)
