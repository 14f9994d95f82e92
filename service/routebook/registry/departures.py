"""Whom to tell that a group's smallest id is another one (905).

The script that makes the change says so to the worker that called it, and to no other: so a receiver is told once,
however many workers there are.

The queue of departures: what waits is carried out in batches, by one task (Apache's unregister service).

Unregistrations of the port (104) wait here up to a capacity; lost connections whose grace has ended join the same
batches, and are never turned away.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from routebook.errors import NotReadyError, NotSeenYetError, StoreError
from routebook.model.broker import MinBrokerChange
from routebook.model.names import Caller
from routebook.replica.replica import ReadYourWrites, Replica
from routebook.settings.live import LiveSettings
from routebook.store.namespace import Namespace, Status
from routebook.store.removal import Departure, unregister_brokers

Listener = Callable[[MinBrokerChange], None]


def _nobody(_change: MinBrokerChange) -> None:
    """Without a port there is nobody who could tell brokers anything."""


class MinBrokerChanges:
    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self.listener: Listener = _nobody

    def tell(self, changes: Iterable[MinBrokerChange]) -> None:
        if self._live.current.notify_min_broker_id_changed:
            for change in changes:
                self.listener(change)


_log = logging.getLogger(__name__)

DEPARTURES_PER_BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class _Waiting:
    departure: Departure
    caller: Caller
    done: asyncio.Future[Status]


class Departures:
    def __init__(self, namespace: Namespace, replica: Replica, min_broker_changes: MinBrokerChanges) -> None:
        self._namespace = namespace
        self._replica = replica
        self._min_broker_changes = min_broker_changes
        self._waiting: deque[_Waiting] = deque()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, departure: Departure, caller: Caller) -> asyncio.Future[Status]:
        """Done when it has taken effect and this worker's table shows it. Fails with a StoreError: whether it took
        effect is unknown then, and nobody tries again.
        """
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        # Whoever does not wait for it need not be told that it failed: the log says so.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._waiting.append(_Waiting(departure, caller, done))
        self._some.set()
        return done

    async def run(self) -> None:
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                while self._waiting:
                    await self._carry_out(list(islice(self._waiting, DEPARTURES_PER_BATCH)))
        finally:
            for one in self._waiting:
                one.done.cancel()

    async def _carry_out(self, batch: list[_Waiting]) -> None:
        sight = ReadYourWrites(self._replica)
        try:
            reply = await unregister_brokers(self._namespace, [(one.departure, one.caller) for one in batch])
        except StoreError as error:
            _log.warning("%d departures did not reach the store: %s", len(batch), error)
            for one in batch:
                if not one.done.done():
                    one.done.set_exception(error)
            self._take_out(batch)
            return
        self._min_broker_changes.tell(reply.notices)
        with suppress(NotSeenYetError, NotReadyError):
            await sight.wait(reply.version)
        for one, status in zip(batch, reply.statuses, strict=True):
            if not one.done.done():
                one.done.set_result(status)
        self._take_out(batch)

    def _take_out(self, batch: list[_Waiting]) -> None:
        for _ in batch:
            self._waiting.popleft()
