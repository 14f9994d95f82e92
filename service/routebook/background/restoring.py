"""After the store lost its data: writes back what no broker registers, from the table that this worker still shows.

Every worker that has the data does this, because the leader may be a new worker without it. Only absent keys are
written, and the first worker to finish ends the restoring of key-values, settings and identities for all. Queue entries
that came from register-topic follow when their broker is back.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from routebook.errors import StoreError
from routebook.model.broker import QueueData, parts_of
from routebook.model.names import Caller
from routebook.replica.recovery import Recovery
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.identities import restore_identities
from routebook.store.namespace import Namespace, Status
from routebook.store.recovery import mark_restored, restore_kv, restore_queues, restore_settings

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")

PERIOD_S: Final = 0.5
ENTRIES_PER_CALL: Final = 250
"""Such a call blocks the store for some 6 ms (`benchmarks/script_blocking.py`)."""


class Restoring:
    def __init__(self, namespace: Namespace, replica: Replica, live: LiveSettings, worker: str) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._restored_history = ""
        """The history into which key-values, settings and identities have been written back."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            recovery = self._replica.recovery
            if recovery is None:
                continue
            try:
                if self._restored_history != self._replica.history:
                    await self._restore_what_operators_wrote(recovery)
                await self._restore_queues(recovery)
            except StoreError as error:
                _log.debug("Restoring waits for the store: %s", error)

    async def _restore_what_operators_wrote(self, recovery: Recovery) -> None:
        history, table = self._replica.history, self._replica.table
        settings = {
            key: (value, self._live.masked(key, value)) for key, value in recovery.carried_settings(table).items()
        }
        written = 0
        for kv_namespace, values in recovery.carried_kv(table).items():
            for part in parts_of(values.items(), ENTRIES_PER_CALL):
                written += (await restore_kv(self._namespace, kv_namespace, dict(part), caller=self._caller)).count
        written += (await restore_settings(self._namespace, settings, caller=self._caller)).count
        for part in parts_of(recovery.carried_identities(table).items(), ENTRIES_PER_CALL):
            written += (await restore_identities(self._namespace, dict(part), caller=self._caller)).count
        await mark_restored(self._namespace)
        self._restored_history = history
        if written:
            _log.warning("The store had lost its data: wrote back %d key-values, settings and identities.", written)

    async def _restore_queues(self, recovery: Recovery) -> None:
        table = self._replica.table
        # The revisions are read together with the entries: a later revision may include a deletion of such an entry.
        lost = [
            (broker, queues, table.groups[broker].revision) for broker, queues in recovery.carried_queues(table).items()
        ]
        for broker, queues, revision in lost:
            written = await write_back_queues(self._namespace, broker, queues, revision=revision, caller=self._caller)
            if written:
                _log.warning("Wrote back %d topics of %s that no broker registers.", written, broker)


async def write_back_queues(
    namespace: Namespace, broker: str, queues: Mapping[str, QueueData], *, revision: int, caller: Caller
) -> int:
    """Writes until another change of the group is made. After another change, the rest waits until this worker has
    applied it, because that change may have deleted one of these topics.
    """
    written = 0
    for part in parts_of(queues.items(), ENTRIES_PER_CALL):
        outcome = await restore_queues(namespace, broker, dict(part), revision=revision, caller=caller)
        if outcome.status is Status.STALE:
            break
        if outcome.status is Status.DONE:
            revision = outcome.version
        written += outcome.count
    return written
