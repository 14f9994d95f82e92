"""Workers and brokers connected to them, without a port in between."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from routebook.model.broker import Registration
from tests.reference.build import registration
from tests.support.fake_connection import FakeConnection
from tests.support.in_process import InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.waiting import until

GRACE_MS = 1500
"""Long enough for a dial on a busy machine."""


class Fleet:
    def __init__(self, workers: list[InProcessWorker]) -> None:
        self.workers = workers
        self._count = 0

    async def join(
        self, worker: InProcessWorker, address: str, connection: FakeConnection | None = None, **changes: Any
    ) -> FakeConnection:
        """Registers a broker in a group of its own, over the given connection or a new one."""
        self._count += 1
        new_broker = registration(address, **({"broker": f"broker-{self._count}"} | changes))
        return await self.register(worker, new_broker, connection)

    async def register(
        self, worker: InProcessWorker, new_broker: Registration, connection: FakeConnection | None = None
    ) -> FakeConnection:
        connection = connection or FakeConnection()
        await register(worker.registry, new_broker, connection=connection)
        return connection

    def shown(self) -> list[set[str]]:
        """The brokers that each worker shows."""
        return [set(worker.registry.brokers()) for worker in self.workers]

    def all_show(self, *brokers: str) -> bool:
        return all(shown == set(brokers) for shown in self.shown())


@asynccontextmanager
async def fleet(store_url: str, namespace: str, size: int = 3, **settings: Any) -> AsyncIterator[Fleet]:
    """The first worker leads."""
    async with AsyncExitStack() as stack:
        wanted = {
            "connection_grace_ms": GRACE_MS,
            "scan_not_active_broker_interval_ms": 100,
            "store_timeout_ms": 5000,
        } | settings
        workers = [await stack.enter_async_context(running_worker(store_url, namespace, **wanted)) for _ in range(size)]
        workers[0].lead()
        await until(lambda: workers[0].leader.lease is not None)
        for worker in workers[1:]:
            worker.lead()
        yield Fleet(workers)


def outcomes(worker: InProcessWorker) -> dict[str, int]:
    """Outcome → number of the connections that this worker lost."""
    found = {}
    for family in worker.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "routebook_lost_connections_total" and sample.value:
                found[sample.labels["outcome"]] = int(sample.value)
    return found


def mass_disconnects(worker: InProcessWorker) -> int:
    return int(worker.metrics.registry.get_sample_value("routebook_mass_disconnect_alarms_total") or 0)
