"""Brokers and clients outside the cluster, in a thread of their own: `with Fleet(host, addresses) as fleet: …`"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from tests.kubernetes.load.broker import LoadBroker
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.record import KINDS, LAST_TRY_S, PATIENCE_S, OpenWindow, Plan, Record

START_SECONDS: Final = 30.0
LAST_LOOKUPS_S: Final = PATIENCE_S + LAST_TRY_S
STOP_SECONDS: Final = LAST_LOOKUPS_S + START_SECONDS
REGISTER_PERIOD_S: Final = 5.0
WRITE_PERIOD_S: Final = 0.1


class Fleet:
    def __init__(
        self,
        host: str,
        name_servers: Sequence[str],
        *,
        brokers: int = 6,
        clients_of_each_kind: int = 10,
        lookups_per_second: float = 3.0,
        prefix: str = "load",
        writer: bool = False,
    ) -> None:
        """`host` is an address of this machine that the workers can reach. `lookups_per_second` is per client. With
        several name servers, brokers and clients begin with different ones.

        `writer` adds a broker that registers ten times per second and so measures how long writes fail. No client looks
        it up. The other brokers register at a normal pace, so that their deadlines are realistic.
        """
        self.record = Record()
        self.plan = Plan(clients_of_each_kind, lookups_per_second, brokers, REGISTER_PERIOD_S)
        self.brokers = [
            LoadBroker(f"{prefix}-{number + 1}", host, _rotated(name_servers, number), self.record.registrations)
            for number in range(brokers)
        ]
        self._writer = LoadBroker(f"{prefix}-writer", host, name_servers, self.record.writes) if writer else None
        self._name_servers = name_servers
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load")
        self._registrations: list[asyncio.Task[None]] = []
        self._lookups: list[asyncio.Task[None]] = []
        self._stop_event = asyncio.Event()

    def open_window(self) -> OpenWindow:
        return OpenWindow(self.record, self.plan)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._call(self._start(), START_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Raises the errors of clients and brokers that died: what they did not see must not count as success."""
        try:
            self._call(self._stop(), STOP_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_SECONDS)
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _start(self) -> None:
        """Starts the brokers first, so that no client asks for a route that cannot exist yet."""
        period_s = self.plan.register_period_s
        for number, broker in enumerate(self.brokers):
            await self._register_first(broker)
            # Spread the brokers over the period, as in a real fleet.
            first_after_s = period_s * (number + 1) / len(self.brokers)
            self._registrations.append(asyncio.create_task(broker.run(period_s, first_after_s)))
        if self._writer:
            await self._register_first(self._writer)
            self._registrations.append(asyncio.create_task(self._writer.run(WRITE_PERIOD_S, 0)))
        # Every worker shows a write within a second.
        await asyncio.sleep(1)
        expected = {broker.name: broker.address for broker in self.brokers}
        for number in range(self.plan.clients_of_each_kind):
            for kind in KINDS:
                addresses = _rotated(self._name_servers, number)
                client = LoadClient(f"{kind}-{number + 1}", kind, addresses, expected, self.record)
                running = client.run(1 / self.plan.lookups_per_second, self._stop_event)
                self._lookups.append(asyncio.create_task(running))

    async def _register_first(self, broker: LoadBroker) -> None:
        await broker.listen()
        if not await broker.register():
            raise RuntimeError(f"{broker.name} could not register: {[*self.record.registrations, *self.record.writes]}")

    async def _stop(self) -> None:
        self._stop_event.set()
        for task in self._registrations:
            task.cancel()
        if self._lookups:
            _, late = await asyncio.wait(self._lookups, timeout=LAST_LOOKUPS_S)
            for task in late:
                task.cancel()
        ended = await asyncio.gather(*self._registrations, *self._lookups, return_exceptions=True)
        brokers = [*self.brokers, self._writer] if self._writer else self.brokers
        await asyncio.gather(*(broker.unregister() for broker in brokers))
        if died := [error for error in ended if isinstance(error, Exception)]:
            raise ExceptionGroup("clients or brokers of the load died", died)


def _rotated(addresses: Sequence[str], number: int) -> list[str]:
    """All addresses, beginning with the one of this number."""
    first = number % len(addresses)
    return [*addresses[first:], *addresses[:first]]
