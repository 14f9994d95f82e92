"""Brokers and clients outside the cluster, in a thread of their own: `with Fleet(host, addresses) as fleet: …`"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from tests.kubernetes.load.broker import LoadBroker
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.record import KINDS, LAST_TRY_S, PATIENCE_S, Plan, Record, Stretch

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
        """`host`: an address of this machine that the workers reach. Of several name servers each broker and client
        begins with another one. Lookups per second are each client's.
        `writer`: one broker more, that nobody asks for, registers ten times a second and so sees how long writes are
        away; the others keep a broker's pace, so that deadlines are what they are for brokers.
        """
        self.record = Record()
        self.plan = Plan(clients_of_each_kind, lookups_per_second, brokers, REGISTER_PERIOD_S)
        self.brokers = [
            LoadBroker(f"{prefix}-{number + 1}", host, _from(name_servers, number), self.record.registrations)
            for number in range(brokers)
        ]
        self._writer = LoadBroker(f"{prefix}-writer", host, name_servers, self.record.writes) if writer else None
        self._name_servers = name_servers
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load")
        self._registering: list[asyncio.Task[None]] = []
        self._asking: list[asyncio.Task[None]] = []
        self._enough = asyncio.Event()

    def stretch(self) -> Stretch:
        return Stretch(self.record, self.plan)

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
        """Whoever of the fleet has died is told now: what it did not see must not pass for what did not happen."""
        try:
            self._call(self._stop(), STOP_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_SECONDS)
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _start(self) -> None:
        """Brokers first; nobody asks for a route that cannot be there yet."""
        period_s = self.plan.register_period_s
        for number, broker in enumerate(self.brokers):
            await self._introduce(broker)
            # Spread over the period, as those of a fleet are.
            first_after_s = period_s * (number + 1) / len(self.brokers)
            self._registering.append(asyncio.create_task(broker.run(period_s, first_after_s)))
        if self._writer:
            await self._introduce(self._writer)
            self._registering.append(asyncio.create_task(self._writer.run(WRITE_PERIOD_S, 0)))
        # A write is everywhere within a second.
        await asyncio.sleep(1)
        expected = {broker.name: broker.address for broker in self.brokers}
        for number in range(self.plan.clients_of_each_kind):
            for kind in KINDS:
                addresses = _from(self._name_servers, number)
                client = LoadClient(f"{kind}-{number + 1}", kind, addresses, expected, self.record)
                running = client.run(1 / self.plan.lookups_per_second, self._enough)
                self._asking.append(asyncio.create_task(running))

    async def _introduce(self, broker: LoadBroker) -> None:
        await broker.listen()
        if not await broker.register():
            raise RuntimeError(f"{broker.name} could not register: {[*self.record.registrations, *self.record.writes]}")

    async def _stop(self) -> None:
        self._enough.set()
        for task in self._registering:
            task.cancel()
        if self._asking:
            _, late = await asyncio.wait(self._asking, timeout=LAST_LOOKUPS_S)
            for task in late:
                task.cancel()
        ended = await asyncio.gather(*self._registering, *self._asking, return_exceptions=True)
        everybody = [*self.brokers, self._writer] if self._writer else self.brokers
        await asyncio.gather(*(broker.unregister() for broker in everybody))
        if died := [error for error in ended if isinstance(error, Exception)]:
            raise ExceptionGroup("clients or brokers of the load died", died)


def _from(addresses: Sequence[str], number: int) -> list[str]:
    """All of them, beginning with that of this number."""
    first = number % len(addresses)
    return [*addresses[first:], *addresses[:first]]
