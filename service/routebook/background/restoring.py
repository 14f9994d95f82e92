"""After the store lost its data: writes back what no broker brings, from the table this worker still remembers.

Any worker that remembers does it, since the leader may be a new one that does not; only absent keys are written, and
the first worker to finish ends it for all. Queue entries that came from register-topic follow
when their broker is back.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from routebook.errors import StoreError
from routebook.model.names import Caller
from routebook.model.topic import QueueData
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.recovery import mark_restored, restore_kv, restore_queues, restore_settings

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")

PERIOD_S: Final = 0.5
ENTRIES_PER_CALL: Final = 250
"""Some 6 ms of the store (`benchmarks/script_blocking.py`), which serves nobody else meanwhile."""


class Restoring:
    def __init__(self, namespace: Namespace, replica: Replica, live: LiveSettings, worker: str) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._caller = Caller(worker)
        self._restored = ""
        """The history whose key-values and settings are written back."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            if not self._replica.is_recovering:
                continue
            try:
                if self._restored != self._replica.history:
                    await self._restore_shared_values()
                await self._restore_queues()
            except StoreError as error:
                _log.debug("Restoring waits for the store: %s", error)

    async def _restore_shared_values(self) -> None:
        history = self._replica.history
        written = 0
        for kv_namespace, values in self._replica.carried_kv().items():
            for part in _parts(values):
                written += (await restore_kv(self._namespace, kv_namespace, part, caller=self._caller)).count
        settings = {
            key: (value, self._live.masked(key, value)) for key, value in self._replica.carried_settings().items()
        }
        written += (await restore_settings(self._namespace, settings, caller=self._caller)).count
        await mark_restored(self._namespace)
        self._restored = history
        if written:
            _log.warning("The store had lost its data: wrote back %d key-values and settings.", written)

    async def _restore_queues(self) -> None:
        # Revisions of the same moment: a later one may know of a deletion that these entries do not.
        lost = [
            (broker, queues, self._replica.table.groups[broker].revision)
            for broker, queues in self._replica.carried_queues().items()
        ]
        for broker, queues, revision in lost:
            written = await write_back_queues(self._namespace, broker, queues, revision=revision, caller=self._caller)
            if written:
                _log.warning("Wrote back %d topics of %s that no broker brings.", written, broker)


async def write_back_queues(
    namespace: Namespace, broker: str, queues: Mapping[str, QueueData], *, revision: int, caller: Caller
) -> int:
    """As long as the group is what we know of it, our own parts included. Once anybody else has changed it, the rest
    waits until this worker has seen what: a topic may have been deleted.
    """
    written = 0
    for part in _parts(queues):
        outcome = await restore_queues(namespace, broker, part, revision=revision, caller=caller)
        if outcome.status is Status.STALE:
            break
        if outcome.status is Status.DONE:
            revision = outcome.version
        written += outcome.count
    return written


def _parts(values: Mapping[str, _Value]) -> Iterator[dict[str, _Value]]:
    items = iter(values.items())
    while part := dict(islice(items, ENTRIES_PER_CALL)):
        yield part
