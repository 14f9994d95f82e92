"""A worker's sign of life, once a second: keeps its lease and the deadline clock, and notices another store."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Final

from routebook.errors import StoreError
from routebook.model.names import Caller
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
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_unknown`: called when the store has no record of this worker."""
        self._namespace = namespace
        self._replica = replica
        self._worker = worker
        self._about = json.dumps(about)
        self._caller = Caller(worker)
        self._on_unknown = on_unknown
        self._failing = False

    async def run(self) -> None:
        while True:
            try:
                renewal = await renew_worker_lease(
                    self._namespace, self._worker, WORKER_LEASE_MS, self._about, caller=self._caller
                )
            except StoreError as error:
                self._note_failure(error)
            else:
                self._note_success()
                self._replica.check_history_head(renewal.head)
                if not renewal.is_known:
                    self._on_unknown()
            await asyncio.sleep(PERIOD_S)

    def _note_failure(self, error: StoreError) -> None:
        """The first write of every second says for all writes that the store refuses them, once."""
        if not self._failing:
            _log.warning("Nothing can be written to the store, so writes are refused here. %s", error)
        self._failing = True

    def _note_success(self) -> None:
        if self._failing:
            _log.info("The store takes writes again.")
        self._failing = False

    async def leave(self) -> None:
        """Its sessions are forgotten, and the brokers it heard get a full timeout: nobody is removed since we go."""
        try:
            while await remove_worker(self._namespace, self._worker, caller=self._caller) is Status.STALE:
                pass
        except StoreError as error:
            _log.warning("Left without saying so (%s); the lease ends by itself.", error)
