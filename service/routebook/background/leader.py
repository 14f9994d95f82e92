"""The leader: the one worker that expires brokers, maintains the history and removes dead workers and empty groups.

Losing the lease must be harmless; it does not have to be impossible. Every script of the leader names the whole lease,
so requests of a former leader are refused. And every removal names the incarnation it decided about, so a late decision
removes nothing.
"""

import asyncio
import logging
import time
from hashlib import sha256
from typing import Final

from routebook.background.history_upkeep import HistoryUpkeep
from routebook.errors import StoreError
from routebook.model.names import Caller, split_instance_name
from routebook.observability.metrics import Metrics
from routebook.registry.removals import MinBrokerChanges
from routebook.registry.sessions import Sessions
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.administration import remove_empty_groups
from routebook.store.history import FencedError
from routebook.store.namespace import Namespace, Status
from routebook.store.reads import read_service_state
from routebook.store.removal import (
    Brake,
    DueInstance,
    Scan,
    expire_brokers,
    hold_expiry,
    release_expiry,
    scan_deadlines,
)
from routebook.store.workers import Lease, acquire_lease, release_lease, remove_worker, renew_lease

_log = logging.getLogger(__name__)

GROUPS_PER_RUN: Final = 50
"""A script blocks the store for some tenths of a millisecond for each group, as it looks through all clusters."""


class EmptyGroups:
    """Removes groups without seats.

    RocketMQ's rules create a group even for a registration that is refused (a single topic of an unknown broker), and
    such a group has no broker that could expire. It is removed when it has been empty for `empty_group_timeout_ms`.
    """

    def __init__(self, namespace: Namespace, replica: Replica, live: LiveSettings, worker: str) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._empty_since: dict[str, tuple[int, float]] = {}
        """Revision of the group, and when it was first seen without seats."""

    async def remove(self, lease: str) -> Status:
        """Called once per scan. FENCED: this worker no longer leads."""
        if self._replica.is_recovering or not self._replica.complete:
            self._empty_since.clear()
            return Status.UNCHANGED
        now, timeout_s = time.monotonic(), self._live.current.empty_group_timeout_ms / 1000
        self._empty_since = {
            name: known if (known := self._empty_since.get(name)) and known[0] == group.revision
            else (group.revision, now)
            for name, group in self._replica.table.groups.items()
            if not group.addresses
        }  # fmt: skip
        due = [(name, revision) for name, (revision, since) in self._empty_since.items() if now - since >= timeout_s]
        for start in range(0, len(due), GROUPS_PER_RUN):
            part = due[start : start + GROUPS_PER_RUN]
            outcome = await remove_empty_groups(self._namespace, lease, part, caller=self._caller)
            if outcome.status is Status.FENCED:
                return Status.FENCED
            if outcome.count:
                _log.info("Removed %d groups that had no broker for %.0f s.", outcome.count, timeout_s)
        return Status.UNCHANGED


INSTANCES_PER_SCAN: Final = 1000
RENEWALS_PER_LEASE: Final = 5
LONGEST_PAUSE_S: Final = 1.0
"""A lease that was released is acquired soon, however long leases are."""
PAUSE_IN_LONG_WORK_S: Final = 0.05
"""Between two parts of a baseline, so that the store is free for others half of the time."""
WORKER_CHECK_S: Final = 1.0
"""Between two checks for expired worker leases. Dead brokers of that worker are removed a grace and a second later."""
SHORTEST_PAUSE_S: Final = 0.02
"""After a scan that took longer than its period, or a store that failed at once."""

FIRST_KEY_VALUES_AFTER_S: Final = 60.0
KEY_VALUES_PERIOD_S: Final = 600.0


def digest_of(value: str) -> str:
    """Shown in place of a value, which may be a secret whatever its key is called."""
    return f"value with sha256 {sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}…"


class KeyValueLog:
    """Logs all keys one minute after the start and then every ten, as Apache's name server does. That one also logs the
    values.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._next: float | None = None

    def log_when_due(self, now: float) -> None:
        if self._next is None:
            self._next = now + FIRST_KEY_VALUES_AFTER_S
        if now < self._next:
            return
        self._next = now + KEY_VALUES_PERIOD_S
        for namespace, values in sorted(self._replica.view.kv.items()):
            for key, value in sorted(values.items()):
                _log.info("key-value %s/%s: %s", namespace, key, digest_of(value))


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
        self._empty_groups = EmptyGroups(namespace, replica, live, worker)
        self._history = HistoryUpkeep(namespace, replica, live, worker, metrics)
        self.lease: Lease | None = None
        """While this worker leads."""
        self._next_scan = 0.0
        self._next_worker_check = 0.0
        self._renewed = 0.0
        self._cut_off = False

    async def run(self) -> None:
        """Renews or requests the lease five times per lease, at least once a second, and scans when a scan is due."""
        while True:
            lease_ms = self._live.current.lease_ms
            next_renewal = time.monotonic() + min(lease_ms / 1000 / RENEWALS_PER_LEASE, LONGEST_PAUSE_S)
            try:
                await self._keep_lease(lease_ms)
                if self.lease:
                    await self._lead(self.lease)
            except StoreError as error:
                _log.debug("Without the store, nothing can be led: %s", error)
                if time.monotonic() - self._renewed > lease_ms / 1000:
                    self._metrics.leading(None)  # the lease has ended, although no reply says so
            await asyncio.sleep(self._pause(next_renewal))

    def _pause(self, next_renewal: float) -> float:
        if self.lease and self._history.is_busy:
            return PAUSE_IN_LONG_WORK_S
        next_step = min(next_renewal, self._next_scan) if self.lease else next_renewal
        return max(next_step - time.monotonic(), SHORTEST_PAUSE_S)

    async def step_down(self) -> None:
        """Releases the lease, so that the next leader does not have to wait for its end."""
        if not self.lease:
            return
        try:
            await release_lease(self._namespace, self.lease)
        except StoreError as error:
            _log.warning("The lease could not be released (%s); it will expire.", error)
        self.lease = None

    async def _keep_lease(self, lease_ms: int) -> None:
        if self.lease and not await renew_lease(self._namespace, self.lease, lease_ms):
            _log.warning("Lost the lease with token %d.", self.lease.token)
            self.lease = None
        if not self.lease:
            is_ours, lease = await acquire_lease(self._namespace, self._worker, lease_ms)
            if is_ours:
                self.lease = lease
                self._next_scan = time.monotonic()
                _log.info("This worker leads now, with token %d.", lease.token)
        self._renewed = time.monotonic()
        self._metrics.leading(self.lease.token if self.lease else None)

    async def _lead(self, lease: Lease) -> None:
        now = time.monotonic()
        self._key_values.log_when_due(now)
        if now >= self._next_worker_check:
            self._next_worker_check = now + WORKER_CHECK_S
            if await self._remove_dead_workers(lease):
                # A scan decides first whether the remaining workers are cut off from the brokers.
                self._next_scan = now
        if now >= self._next_scan:
            # Counted from the planned time, so that scans do not drift. Scans missed during a pause are not repeated.
            period_s = self._live.current.scan_not_active_broker_interval_ms / 1000
            self._next_scan = max(self._next_scan + period_s, now)
            await self._scan(lease)
            statuses = (
                await self._sessions.adopt_lost_connections(lease.whole),
                await self._empty_groups.remove(lease.whole),
            )
            if Status.FENCED in statuses:
                self.lease = None
                return
        try:
            await self._history.work(lease.whole)
        except FencedError:
            self.lease = None

    # -- expiry

    async def _scan(self, lease: Lease) -> None:
        while True:
            brake = Brake.of(self._live.current)
            scan = await scan_deadlines(
                self._namespace, lease.whole, caller=self._caller, limit=INSTANCES_PER_SCAN, brake=brake
            )
            if scan.status is Status.FENCED:
                self.lease = None
                return
            self._metrics.scan()
            self._report_cut_off(scan)
            await self._hold_or_release(lease, scan)
            due = [one for one in scan.listed if not scan.has_to_hold or _may_expire_in_hold(one, scan)]
            if not due:
                return
            await self._expire(lease, due)
            if len(scan.listed) < INSTANCES_PER_SCAN or len(due) < len(scan.listed):
                return

    async def _hold_or_release(self, lease: Lease, scan: Scan) -> None:
        self._metrics.expiry_held(scan.has_to_hold)
        self._metrics.expiry_due(scan.due)
        if scan.has_to_hold:
            due = [one.instance_name for one in scan.listed if not _may_expire_in_hold(one, scan)]
            names = sorted({self._broker_of(name) for name in (*due, *scan.held)})
            outcome = await hold_expiry(self._namespace, lease.whole, names, caller=self._caller)
            if outcome.status is Status.DONE:
                self._metrics.hold_began()
                _log.error(
                    "Removals are held: %d of %d brokers are due or lost, and %d were removed lately. "
                    "`routebook expiry release` removes them.",
                    scan.counting,
                    scan.instances,
                    scan.removed_recently,
                )
        elif scan.held_since_ms is not None:
            await release_expiry(self._namespace, caller=self._caller, expire_due=False, lease=lease.whole)
            _log.warning("Removals are no longer held: %d of %d brokers are due.", scan.due, scan.instances)

    def _report_cut_off(self, scan: Scan) -> None:
        if scan.cut_off and not self._cut_off:
            self._metrics.mass_disconnect()
            _log.error(
                "Most workers are gone and no heartbeat has arrived since: expiry pauses until a heartbeat arrives or "
                "workers are back. Look at the network between this worker, the others and the brokers."
            )
        elif self._cut_off and not scan.cut_off:
            _log.warning("Expiry continues: workers or brokers are back.")
        self._cut_off = scan.cut_off

    def _broker_of(self, instance_name: str) -> str:
        instance = self._replica.table.instances.get(instance_name)
        return instance.broker if instance else split_instance_name(instance_name)[1]

    async def _expire(self, lease: Lease, due: list[DueInstance]) -> None:
        while due:
            reply = await expire_brokers(self._namespace, lease.whole, due, caller=self._caller)
            if reply.status is Status.FENCED:
                self.lease = None
                return
            self._metrics.expired(len(reply.removed))
            self._min_broker_changes.notify(reply.notices)
            due = due[reply.handled :]

    # -- workers

    async def _remove_dead_workers(self, lease: Lease) -> bool:
        """Returns whether there was one. The connections that it lost are adopted afterwards."""
        state = await read_service_state(self._namespace)
        has_removed = False
        for worker, left_ms in state.workers.items():
            if left_ms >= 0:
                continue
            status = Status.STALE
            while status is Status.STALE:
                status = await remove_worker(self._namespace, worker, caller=self._caller, lease=lease.whole)
            if status is Status.DONE:
                has_removed = True
                _log.warning("Worker %s is gone; its brokers are dialled once, and get one more full timeout.", worker)
        return has_removed


def _may_expire_in_hold(due: DueInstance, scan: Scan) -> bool:
    """An operator has released it, or it does not count for the brake."""
    return due.deadline <= scan.released_to or not due.counts
