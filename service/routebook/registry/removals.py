"""The queue of removals, and the notices about a group's smallest id (905).

Unregistrations from the remoting port (104) wait in the queue up to a capacity. Lost connections whose grace has ended
join the same batches and are never refused. One task works the queue off, like the unregister service of Apache's name
server.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from routebook.errors import NotReadyError, NotSeenYetError, StoreError
from routebook.model.broker import MinBrokerChange
from routebook.model.names import Caller
from routebook.observability.metrics import Metrics
from routebook.replica.replica import ReadYourWrites, Replica
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import Brake, Removal, RemovalsReply, unregister_brokers

_log = logging.getLogger(__name__)

REMOVALS_PER_BATCH: Final = 200


class MinBrokerChanges:
    """Hands each change of a group's smallest id to the listener, if the settings ask for it.

    The script that makes such a change reports it only to the worker that called it. So each broker is notified once,
    however many workers there are.
    """

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self.listener: Callable[[MinBrokerChange], None] | None = None
        """Set by the remoting port, which can notify brokers."""

    def notify(self, changes: Iterable[MinBrokerChange]) -> None:
        if self.listener and self._live.current.notify_min_broker_id_changed:
            for change in changes:
                self.listener(change)


@dataclass(frozen=True, slots=True)
class _Waiting:
    removal: Removal
    caller: Caller
    done: asyncio.Future[Status]


class RemovalQueue:
    def __init__(
        self,
        namespace: Namespace,
        replica: Replica,
        live: LiveSettings,
        min_broker_changes: MinBrokerChanges,
        metrics: Metrics,
    ) -> None:
        self._namespace = namespace
        self._replica = replica
        self._live = live
        self._min_broker_changes = min_broker_changes
        self._metrics = metrics
        self._waiting: deque[_Waiting] = deque()
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, removal: Removal, caller: Caller) -> asyncio.Future[Status]:
        """Done when the removal has taken effect and this worker's table shows it. Fails with a StoreError: then it is
        unknown whether the removal took effect, and it is not repeated.
        """
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        done.add_done_callback(mark_retrieved)
        self._waiting.append(_Waiting(removal, caller, done))
        self._not_empty.set()
        return done

    async def remove_now(self, removals: Sequence[tuple[Removal, Caller]]) -> RemovalsReply:
        """Without waiting in the queue."""
        reply = await unregister_brokers(self._namespace, removals, Brake.of(self._live.current))
        self._min_broker_changes.notify(reply.notices)
        if reply.hold_began:
            self._metrics.hold_began()
            _log.error(
                "Removals are held: too many brokers were unregistered or lost their connections within a short time. "
                "They stay until they send heartbeats again, or `routebook expiry release` removes them."
            )
        return reply

    async def run(self) -> None:
        try:
            while True:
                await self._not_empty.wait()
                self._not_empty.clear()
                while self._waiting:
                    await self._remove(list(islice(self._waiting, REMOVALS_PER_BATCH)))
        finally:
            for waiting in self._waiting:
                waiting.done.cancel()

    async def _remove(self, batch: list[_Waiting]) -> None:
        write = ReadYourWrites(self._replica)
        try:
            reply = await self.remove_now([(one.removal, one.caller) for one in batch])
        except StoreError as error:
            _log.warning("%d removals did not reach the store: %s", len(batch), error)
            for one in batch:
                if not one.done.done():
                    one.done.set_exception(error)
        else:
            with suppress(NotSeenYetError, NotReadyError):
                await write.wait(reply.version)
            for one, status in zip(batch, reply.statuses, strict=True):
                if not one.done.done():
                    one.done.set_result(status)
        for _ in batch:
            self._waiting.popleft()


def mark_retrieved(done: asyncio.Future[Status] | asyncio.Future[None]) -> None:
    """Keeps asyncio from reporting a failure that no caller waits for: it has been logged."""
    if not done.cancelled():
        done.exception()
