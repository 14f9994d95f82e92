"""Brokers and clients outside the cluster, in a thread of their own: `with Fleet(host, addresses) as fleet: …`"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from tests.kubernetes.load.broker import LoadBroker
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.record import Record, Stretch

START_SECONDS: Final = 30.0
REGISTER_PERIOD_S: Final = 5.0


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
    ) -> None:
        """`host`: an address of this machine that the workers reach. Lookups per second are each client's."""
        self.record = Record()
        self.brokers = [
            LoadBroker(f"{prefix}-{number + 1}", host, name_servers, self.record) for number in range(brokers)
        ]
        self._name_servers = name_servers
        self._clients = clients_of_each_kind
        self._period_s = 1 / lookups_per_second
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load")
        self._tasks: list[asyncio.Task[None]] = []

    def stretch(self) -> Stretch:
        return Stretch(self.record)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _start(self) -> None:
        """Brokers first; nobody asks for a route that cannot be there yet."""
        for broker in self.brokers:
            await broker.listen()
            if not await broker.register():
                raise RuntimeError(f"{broker.name} could not register: {self.record.registrations[-1]}")
            self._spawn(broker.run(REGISTER_PERIOD_S))
        # A write is everywhere within a second.
        await asyncio.sleep(1)
        expected = {broker.name: broker.address for broker in self.brokers}
        for number in range(self._clients):
            for kind in ("follows", "retries"):
                client = LoadClient(f"{kind}-{number + 1}", kind, self._name_servers, expected, self.record)
                self._spawn(client.run(self._period_s))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(broker.unregister() for broker in self.brokers))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))
