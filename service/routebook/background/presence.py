"""Renews this worker's own lease once a second. The reply shows whether the store is still the same one.

The lease tells the others that this worker can receive heartbeats. The deadline clock runs as long as any worker can.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from routebook.errors import StoreError
from routebook.model.names import Caller
from routebook.registry.status import StoreHealth
from routebook.replica.replica import Replica
from routebook.store.namespace import Namespace, Status
from routebook.store.workers import WORKER_LEASE_MS, remove_worker, renew_worker_lease

_log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0


class Presence:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        worker: str,
        about: dict[str, Any],
        *,
        health: StoreHealth,
        figures: Callable[[], Mapping[str, Any]] = dict,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        """`figures` returns what the worker has done so far; `on_unknown` is called when the store has no record of
        this worker.
        """
        self._namespace = namespace
        self._replica = replica
        self._worker = worker
        self._about = about
        self._figures = figures
        self._caller = Caller(worker)
        self._health = health
        self._on_unknown = on_unknown
        self._is_failing = False

    async def run(self) -> None:
        while True:
            try:
                renewal = await renew_worker_lease(
                    self._namespace, self._worker, WORKER_LEASE_MS, self._describe(), caller=self._caller
                )
            except StoreError as error:
                self._note_failure(error)
            else:
                self._note_success()
                self._replica.check_history_head(renewal.head)
                self._health.removals_held = renewal.is_held
                if not renewal.is_known:
                    self._on_unknown()
            await asyncio.sleep(PERIOD_S)

    def _describe(self) -> str:
        """The fixed facts, and the state of the table: workers with the same version must have the same digest."""
        table = {
            "version": self._replica.version,
            "digest": self._replica.table.digest,
            "stale_ms": self._replica.stale_ms(),
        }
        return json.dumps({**self._about, "table": table, "figures": self._figures()})

    def _note_failure(self, error: StoreError) -> None:
        """Logged here once, on behalf of all writes: this is the first write of every second."""
        if not self._is_failing:
            _log.warning("Nothing can be written to the store, so writes are refused here. %s", error)
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            _log.info("The store takes writes again.")
        self._is_failing = False

    async def deregister(self) -> None:
        """Removes this worker and its sessions from the store. Its brokers get one more full timeout."""
        try:
            while await remove_worker(self._namespace, self._worker, caller=self._caller) is Status.STALE:
                pass
        except StoreError as error:
            _log.warning("This worker could not be deregistered (%s); its lease will expire.", error)
