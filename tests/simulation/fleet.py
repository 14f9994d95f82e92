"""The processes of a run: workers made of the service's own classes, brokers, and the connections between them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from routebook.background.leader import Leader
from routebook.background.presence import Presence
from routebook.background.restoring import Restoring
from routebook.background.self_check import SelfCheck
from routebook.errors import RoutebookError, StoreError
from routebook.model.broker import DataVersion, QueueData, Registration, RegistrationResult, Seat
from routebook.model.names import Caller
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import Replica
from routebook.settings.live import LiveSettings
from routebook.settings.loading import Loaded, load
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.simulation.network import SimulatedClient
from tests.simulation.virtual_time import Process

if TYPE_CHECKING:
    from tests.simulation.network import StoreServer
    from tests.simulation.world import World

NAMESPACE: Final = "sim"
TIMEOUT_S: Final = 8.0
PERIOD_S: Final = 2.0
"""How often a broker registers. As with the real figures (120 s and 30 s), a broker may miss two periods."""
GRACE_S: Final = 1.0
RECOVERY_WINDOW_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 3.0
RETRY_S: Final = 1.0
RESTART_S: Final = 0.5
"""After a worker whose start failed has ended."""
TOPICS: Final = 3

SETTINGS: Final[Mapping[str, int]] = {
    "broker_timeout_ms": int(TIMEOUT_S * 1000),
    "scan_not_active_broker_interval_ms": 1_000,
    "lease_ms": 5_000,
    "connection_grace_ms": int(GRACE_S * 1000),
    "store_cut_off_ms": 4_000,
    "recovery_window_ms": int(RECOVERY_WINDOW_S * 1000),
    "hold_window_ms": 10_000,
    "self_check_interval_ms": 0,
    "history_min_entries": 6,
    "history_hard_limit": 20,
}
"""Times a tenth of the usual ones, so that a run is short. The history is small, so that it is trimmed."""
SELF_CHECK_MS: Final = 6_000


@cache
def loaded(*, self_check: bool) -> Loaded:
    found = load({"redis_url": "redis://127.0.0.1:1", "namespace": NAMESPACE, "bind_address": "127.0.0.1"})
    changes = {**SETTINGS, "self_check_interval_ms": SELF_CHECK_MS if self_check else 0}
    # Not validated: some of these are below the least value that an operator may set.
    return replace(found, settings=found.settings.model_copy(update=changes))


@cache
def metrics() -> Metrics:
    """One for all runs: nothing that the service decides depends on it, and to make one takes milliseconds."""
    return Metrics()


class ObservedReplica(Replica):
    """Reports each change of what readers are shown."""

    on_publish: Callable[[], None]

    def invalidate(self, topics: set[str]) -> None:
        super().invalidate(topics)
        self.on_publish()

    def publish(self, topics: set[str]) -> None:
        super().publish(topics)
        self.on_publish()


class BrokerConnection:
    """Between a broker and one start of a worker. Both sides may end it."""

    def __init__(self, number: int, broker: "Broker", worker: "Worker") -> None:
        self._number = number
        self.broker = broker
        self.worker = worker
        self.peer = f"{broker.host}:{40_000 + number}"
        self.is_open_at_broker = True
        self.is_open_at_worker = True
        worker.connections[self] = None

    def __hash__(self) -> int:
        """Not by its place in memory: sets of connections have to have the same order in each run of a seed."""
        return self._number

    def close(self, reason: str) -> None:
        """Called by the service."""
        self._end_at_worker()
        world = self.broker.world
        world.network.deliver_end(self.worker.place, self.broker.host, self._end_at_broker)

    def close_from_broker(self) -> None:
        self._end_at_broker()
        self.broker.world.network.deliver_end(self.broker.host, self.worker.place, self._end_at_worker)

    def reset(self) -> None:
        """Something in between ends it on both sides."""
        network = self.broker.world.network
        network.deliver_end(self.worker.place, self.broker.host, self._end_at_broker)
        network.deliver_end(self.broker.host, self.worker.place, self._end_at_worker)

    def _end_at_broker(self) -> None:
        if self.is_open_at_broker:
            self.is_open_at_broker = False
            if self.broker.connection is self:
                self.broker.connection = None

    def _end_at_worker(self) -> None:
        if self.is_open_at_worker:
            self.is_open_at_worker = False
            self.worker.connections.pop(self, None)
            if self.worker.process.is_alive:
                loop = self.broker.world.loop
                self.worker.process.call(loop.call_soon, self.worker.registry.sessions.connection_closed, self)


class Worker:
    """One start of a worker, in the order of `runtime/worker.py`."""

    def __init__(self, world: "World", place: str, start: int) -> None:
        self.world = world
        self.place = place
        """Its name on the network, which stays the same when it is started again."""
        self.name = f"{place}.{start}"
        self.process = Process(world.loop, self.name)
        self.connections: dict[BrokerConnection, None] = {}
        self.is_ready = False
        self.is_stopping = False
        self.process.call(self._build)

    def _build(self) -> None:
        world = self.world
        live = LiveSettings(loaded(self_check=world.plan.self_check))
        self.client = SimulatedClient(world.network, self.place, world.primary_of)
        self.namespace = Namespace(self.client, Keys(NAMESPACE), world.scripts)
        self.replica = ObservedReplica(self.namespace, live)
        self.replica.on_publish = lambda: world.checker.view_changed(self)
        self.registry = Registry(self.namespace, self.replica, live, worker=self.name, metrics=metrics())
        self._presence = Presence(
            self.namespace,
            self.replica,
            self.name,
            {},
            on_unknown=self.registry.sessions.reopen,
            health=self.registry.store_health,
        )
        self.leader = Leader(
            self.namespace,
            self.replica,
            live,
            self.name,
            metrics(),
            sessions=self.registry.sessions,
            min_broker_changes=self.registry.min_broker_changes,
        )
        self._restoring = Restoring(self.namespace, self.replica, live, self.name)
        self._self_check = SelfCheck(
            self.namespace, self.replica, live, self.name, metrics=metrics(), health=self.registry.store_health
        )
        self.registry.on_suspected_damage = self._self_check.suspect
        self._background: list[asyncio.Task[Any]] = []

    @property
    def serves(self) -> bool:
        return self.is_ready and not self.is_stopping and self.process.is_alive and not self.process.is_suspended

    def start(self) -> None:
        self.process.spawn(self._start())

    async def _start(self) -> None:
        try:
            while True:
                try:
                    await self.client.open()
                    break
                except StoreError:
                    await asyncio.sleep(0.5)
            await open_namespace(self.namespace)
            self._spawn("replica", self.replica.run())
            await self.replica.wait_complete(20_000)
        except RoutebookError:
            # The process ends, and its supervisor starts another one.
            self.world.worker_ended(self, RESTART_S)
            return
        self._spawn("presence", self._presence.run())
        self._spawn("leader", self.leader.run())
        self._spawn("restoring", self._restoring.run())
        self._spawn("self-check", self._self_check.run())
        self._spawn("sessions", self.registry.sessions.run())
        self.is_ready = True

    def _spawn(self, name: str, work: Any) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._background_ended)
        self._background.append(task)

    def _background_ended(self, task: "asyncio.Task[Any]") -> None:
        if self.is_stopping:
            return
        error = None if task.cancelled() else task.exception()
        self.world.checker.violated("background", f"{task.get_name()} of {self.name} ended: {error!r}.")

    async def stop(self) -> None:
        """As `Worker._end` does."""
        self.is_stopping = True
        self.registry.sessions.drain()
        for connection in list(self.connections):
            connection.close("the worker stops")
            await asyncio.sleep(0.02)
        feed, *others = self._background
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=3.0)
        try:
            async with asyncio.timeout(3.0):
                if self.client.is_connected:
                    await self.leader.step_down()
                    await self._presence.deregister()
        except TimeoutError:
            pass
        feed.cancel()
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        for connection in list(self.connections):
            connection.reset()
        self.connections.clear()
        self.client.abandon()


@dataclass(frozen=True, slots=True)
class Ack:
    """An accepted registration."""

    sent_at: float
    received_at: float
    store: "StoreServer"


def topics_of(group: str, config: int) -> list[str]:
    """A configuration has the topics of the one before, and a new one."""
    return [
        *(f"{group}-{number}" for number in range(TOPICS)),
        *(f"new-{group}-{number}" for number in range(2, config + 1)),
    ]


class Broker:
    """Registers every period with one worker, like a broker behind a load balancer."""

    def __init__(self, world: "World", group: str, broker_id: int, number: int) -> None:
        self.world = world
        self.group = group
        self.broker_id = broker_id
        self.number = number
        self.moves = 0
        self.unregistered_at = -1000.0
        self.has_registered = False
        """Since its last start. The store may have lost it."""
        self.is_running = False
        self.started_at = 0.0
        self.acked_at: float | None = None
        """When the last registration of this start had been sent that was accepted, and that the store has not lost."""
        self.acks: list[Ack] = []
        self.connection: BrokerConnection | None = None
        self.process = Process(world.loop, self.name)
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        return f"{self.group}/{self.broker_id}"

    @property
    def host(self) -> str:
        return f"10.0.0.{10 * self.number + self.moves % 10 + 1}"

    @property
    def address(self) -> str:
        return f"{self.host}:10911"

    @property
    def topics(self) -> list[str]:
        return topics_of(self.group, self.world.configs[self.group])

    @property
    def is_healthy(self) -> bool:
        return self.is_running and not self.process.is_suspended and self.has_registered

    def start(self) -> None:
        self.process.kill()  # one that hangs in its last request
        self.process = Process(self.world.loop, self.name)
        self.is_running, self.acked_at, self.connection = True, None, None
        self.started_at = self.world.loop.now
        self.has_registered = False
        self.acks.clear()
        self._wake = asyncio.Event()
        self.process.spawn(self._run())

    def kill(self) -> None:
        self.is_running, self.acked_at = False, None
        self.process.kill()
        if self.connection:
            self.connection.close_from_broker()
            self.connection = None

    def acks_were_lost(self, has_kept: Callable[[Ack], bool], store: "StoreServer") -> None:
        """The store has another state now, which has some of the registrations only."""
        self.acks = [replace(ack, store=store) for ack in self.acks if has_kept(ack)]
        self.acked_at = self.acks[-1].sent_at if self.acks else None

    def register_soon(self) -> None:
        self._wake.set()

    async def unregister(self) -> None:
        """104, as an orderly shutdown sends it. The process ends afterwards, whatever the answer is."""
        connection, process = self.connection, self.process
        self.is_running, self.acked_at, self.unregistered_at = False, None, self.world.loop.now
        if connection:
            registry, address = connection.worker.registry, self.address

            async def remove() -> None:
                done = registry.queue_unregistration(
                    NAMESPACE, self.group, self.broker_id, address, self._caller(connection), connection=connection
                )
                if done:
                    await done

            with suppress(RoutebookError, ConnectionError):
                await self.world.request(self, connection, remove)
        if self.process is process:
            self.kill()

    async def _run(self) -> None:
        while True:
            pause = PERIOD_S * (0.95 + 0.1 * self.world.chance.random())
            try:
                await self._register()
            except (RoutebookError, ConnectionError):
                pause = RETRY_S
                if self.connection:
                    self.connection.close_from_broker()
                    self.connection = None
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _register(self) -> None:
        if self.connection is None:
            self.connection = await self.world.connect(self)
        connection, sent_at = self.connection, self.world.loop.now
        config = self.world.configs[self.group]
        # Made now: the request may be handled when this broker already runs at another address.
        registration, sent = self._registration(config), (f"{self.name} {self.address} {config}".encode(),)

        async def read_body() -> Registration:
            return registration

        def register() -> Awaitable[RegistrationResult]:
            return connection.worker.registry.register(
                Seat(NAMESPACE, self.group, self.broker_id),
                sent,
                read_body,
                self._caller(connection),
                connection=connection,
            )

        result = await self.world.request(self, connection, register)
        if result.status in ("changed", "unchanged"):
            self.acked_at, self.has_registered = sent_at, True
            self.acks.append(Ack(sent_at, self.world.loop.now, self.world.primary_of(connection.worker.place)))
            self.world.checker.registered(self, topics_of(self.group, config))

    def _caller(self, connection: BrokerConnection) -> Caller:
        return Caller(self.group, connection.peer)

    def _registration(self, config: int) -> Registration:
        """Each version of the configuration has its own number of queues, the same for all topics."""
        return Registration(
            cluster=NAMESPACE,
            broker=self.group,
            broker_id=self.broker_id,
            address=self.address,
            data_version=DataVersion(0, 1_700_000_000_000, config),
            topics={topic: QueueData(config, config) for topic in topics_of(self.group, config)},
        )
