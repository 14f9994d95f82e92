"""Apache's name server logs all key-values after one minute and then every ten; so does the leader, secrets masked.

The one worker that expires brokers, looks after the history and forgets dead workers.

Losing the lease must be harmless, not impossible: each script of the leader names its whole lease, so what an older
leader still sends is refused; and each removal names the incarnation it decided about, so a decision that came late
removes nothing.
"""

import asyncio
import logging
import re
import time
from typing import Final

from routebook.background.history_upkeep import HistoryUpkeep
from routebook.errors import StoreError
from routebook.model.names import Caller, split_instance_name
from routebook.observability.metrics import Metrics
from routebook.registry.removals import MinBrokerChanges
from routebook.registry.sessions import Sessions
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.history import FencedError
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_service_state
from routebook.store.removal import (
    DueInstance,
    Scan,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
)
from routebook.store.workers import Lease, acquire_lease, release_lease, remove_worker, renew_lease

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


_log_of_leader = logging.getLogger(__name__)

INSTANCES_PER_SCAN: Final = 1000
RENEWALS_PER_LEASE: Final = 5
LONGEST_PAUSE_S: Final = 1.0
"""A lease that was given back is taken up soon, however long leases are."""
STEP_PAUSE_S: Final = 0.05
"""Between two steps of a long work: the store belongs to others for as long as it was ours."""
SHORTEST_PAUSE_S: Final = 0.02
"""After a scan that took longer than its period, or a store that failed at once."""


class Leader:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        worker: str,
        metrics: Metrics,
        *,
        sessions: Sessions,
        min_broker_changes: MinBrokerChanges,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._worker = worker
        self._metrics = metrics
        self._sessions = sessions
        self._min_broker_changes = min_broker_changes
        self._caller = Caller(worker)
        self._key_values = KeyValueLog(replica)
        self._history = HistoryUpkeep(namespace, replica, live, worker, metrics)
        self._lease: Lease | None = None
        self._next_scan = 0.0
        self._renewed = 0.0
        self._cut_off = False

    @property
    def lease(self) -> Lease | None:
        return self._lease

    async def run(self) -> None:
        """Renews or asks for the lease five times a lease, at least once a second; scans when that is due."""
        while True:
            lease_ms = self._live.current.lease_ms
            next_renewal = time.monotonic() + min(lease_ms / 1000 / RENEWALS_PER_LEASE, LONGEST_PAUSE_S)
            try:
                await self._keep_lease(lease_ms)
                if self._lease:
                    await self._lead(self._lease)
            except StoreError as error:
                _log_of_leader.debug("Nothing can be led without the store: %s", error)
                if time.monotonic() - self._renewed > lease_ms / 1000:
                    self._metrics.leading(None)  # the lease has ended, though nobody could say so here
            await asyncio.sleep(self._pause(next_renewal))

    def _pause(self, next_renewal: float) -> float:
        if self._lease and self._history.is_busy:
            return STEP_PAUSE_S
        next_look = min(next_renewal, self._next_scan) if self._lease else next_renewal
        return max(next_look - time.monotonic(), SHORTEST_PAUSE_S)

    async def step_down(self) -> None:
        """The next leader need not wait for the lease to end."""
        if not self._lease:
            return
        try:
            await release_lease(self._namespace, self._lease)
        except StoreError as error:
            _log_of_leader.warning("Stepped down without saying so (%s); the lease ends by itself.", error)
        self._lease = None

    async def _keep_lease(self, lease_ms: int) -> None:
        if self._lease and not await renew_lease(self._namespace, self._lease, lease_ms):
            _log_of_leader.warning("Lost the lease with token %d.", self._lease.token)
            self._lease = None
        if not self._lease:
            ours, lease = await acquire_lease(self._namespace, self._worker, lease_ms)
            if ours:
                self._lease = lease
                self._next_scan = time.monotonic()
                _log_of_leader.info("This worker leads now, with token %d.", lease.token)
        self._renewed = time.monotonic()
        self._metrics.leading(self._lease.token if self._lease else None)

    async def _lead(self, lease: Lease) -> None:
        now = time.monotonic()
        self._key_values.tell_when_due(now)
        if now >= self._next_scan:
            # From the plan, not from now: scans do not drift. But none is made up for after a pause.
            period = self._live.current.scan_not_active_broker_interval_ms / 1000
            self._next_scan = max(self._next_scan + period, now)
            # Before the scan: whether most of us are gone decides what a silence means.
            await self._forget_dead_workers(lease)
            await self._scan(lease)
            if await self._sessions.adopt_lost_connections(lease.whole) is Status.FENCED:
                self._lease = None
                return
        try:
            await self._history.go_on(lease.whole)
        except FencedError:
            self._lease = None

    # -- expiry

    async def _scan(self, lease: Lease) -> None:
        while True:
            window_ms = self._live.current.hold_window_ms
            scan = await scan_deadlines(
                self._namespace, lease.whole, caller=self._caller, limit=INSTANCES_PER_SCAN, window_ms=window_ms
            )
            if scan.status is Status.FENCED:
                self._lease = None
                return
            self._metrics.scan()
            self._tell_cut_off(scan)
            held = self._is_mass_expiry(scan)
            await self._tell_hold(lease, scan, held=held)
            due = [one for one in scan.listed if not held or _may_go(one, scan)]
            if not due:
                return
            await self._expire(lease, due)
            if len(scan.listed) < INSTANCES_PER_SCAN or len(due) < len(scan.listed):
                return

    def _is_mass_expiry(self, scan: Scan) -> bool:
        """So many within so short a time is more likely our fault, or the network's, than theirs."""
        settings = self._live.current
        silent = scan.counting + scan.expired_lately
        of = scan.instances + scan.expired_lately
        return scan.counting > 0 and silent >= settings.hold_minimum and silent * 100 > settings.hold_percent * of

    async def _tell_hold(self, lease: Lease, scan: Scan, *, held: bool) -> None:
        self._metrics.expiry_held(held)
        self._metrics.expiry_due(scan.due)
        if held:
            names = sorted({self._broker_of(one) for one in scan.listed if not _may_go(one, scan)})
            outcome = await hold_expiry(self._namespace, lease.whole, names, caller=self._caller)
            if outcome.status is Status.DONE:
                self._metrics.hold_began()
                _log_of_leader.error(
                    "Expiry is held: %d of %d brokers are due and %d expired lately. "
                    "`routebook expiry release` lets it happen.",
                    scan.counting,
                    scan.instances,
                    scan.expired_lately,
                )
        elif scan.held_since_ms is not None:
            await release_expiry(self._namespace, caller=self._caller, expire_due=False, lease=lease.whole)
            _log_of_leader.warning("Expiry is no longer held: %d of %d brokers are due.", scan.due, scan.instances)

    def _tell_cut_off(self, scan: Scan) -> None:
        if scan.cut_off and not self._cut_off:
            self._metrics.mass_disconnect()
            _log_of_leader.error(
                "Most workers are gone and nobody was heard since: deadlines stand still until a broker is heard or "
                "workers are back. Look at the network between this worker, the others and the brokers."
            )
        elif self._cut_off and not scan.cut_off:
            _log_of_leader.warning("Deadlines go on: workers or brokers are back.")
        self._cut_off = scan.cut_off

    def _broker_of(self, due: DueInstance) -> str:
        instance = self._replica.table.instances.get(due.instance_name)
        return instance.broker if instance else split_instance_name(due.instance_name)[1]

    async def _expire(self, lease: Lease, due: list[DueInstance]) -> None:
        while due:
            reply = await expire_brokers(self._namespace, lease.whole, due, caller=self._caller)
            if reply.status is Status.FENCED:
                self._lease = None
                return
            self._metrics.expired(len(reply.removed))
            self._min_broker_changes.notify(reply.notices)
            due = due[reply.handled :]

    # -- workers

    async def _forget_dead_workers(self, lease: Lease) -> None:
        state = await read_service_state(self._namespace)
        for worker, left_ms in state.workers.items():
            if left_ms >= 0:
                continue
            status = Status.STALE
            while status is Status.STALE:
                status = await remove_worker(self._namespace, worker, caller=self._caller, lease=lease.whole)
            if status is Status.DONE:
                _log_of_leader.warning("Worker %s is gone; its brokers get one full timeout more.", worker)


def _may_go(due: DueInstance, scan: Scan) -> bool:
    """Even while expiry is held: an operator has said so, or nothing depends on it."""
    return due.deadline <= scan.released_to or not due.holds_seat
