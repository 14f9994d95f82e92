"""The whole simulated fleet: its start, the execution of the plan, and its end."""

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from routebook.compare.collecting import run_concurrently
from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.model.broker import QueueData
from routebook.simulate.broker import BrokerOptions, GroupState, SimulatedBroker, TopicTable, clamp_period
from routebook.simulate.client import ServerConnection, SimulatedClient
from routebook.simulate.layout import GroupLayout, Layout, groups_of, port_of, system_topics, topics_of
from routebook.simulate.plan import Churn, plan
from routebook.simulate.records import FORMAT, Counts, Journal
from routebook.simulate.troubles import Troubles, sorted_by_broker_id

MAX_CONCURRENT: Final = 16
"""Number of brokers that start or stop at the same time."""
COUNTS_EVERY_S: Final = 10.0
MAX_TOPICS_PER_CLIENT: Final = 5


@dataclass(frozen=True, slots=True)
class Options:
    name_servers: Sequence[str]
    layout: Layout = field(default_factory=Layout)
    churn: Churn = field(default_factory=Churn)
    seed: int = 1
    clients: int = 0
    poll_s: float = 30.0
    period_s: float = 30.0
    timeout_ms: int | None = None
    follows_go_away: bool = True

    def __post_init__(self) -> None:
        period_ms = int(clamp_period(self.period_s) * 1000)
        if self.timeout_ms is not None and self.timeout_ms <= period_ms:
            raise InvalidInputError(
                "timeout-ms", self.timeout_ms, f"more than {period_ms}: brokers register every {period_ms} ms"
            )


class Simulation:
    def __init__(self, options: Options, journal: Journal) -> None:
        self.options = options
        self.counts = Counts()
        self.journal = journal
        layouts = groups_of(options.layout)
        self._topics = topics_of(options.layout, layouts, options.seed)
        broker_options = BrokerOptions(options.name_servers, options.period_s, options.timeout_ms, journal, self.counts)
        self.groups = {group.name: self._create_group(group, broker_options) for group in layouts}
        self._plan = plan(layouts, self._topics, options.churn, options.seed, options.layout.prefix)
        self._troubles = Troubles(self.groups, options.name_servers, journal, self.counts)
        self._clients = [self._client(number) for number in range(options.clients)]
        self._tasks: set[asyncio.Task[None]] = set()

    def _create_group(self, layout: GroupLayout, options: BrokerOptions) -> list[SimulatedBroker]:
        topics: dict[str, QueueData] = {**system_topics(layout.cluster, layout.name)}
        topics |= {name: topic.queue for name, topic in self._topics.items() if layout.name in topic.groups}
        group = GroupState(layout.name, layout.cluster, TopicTable(topics))
        port = port_of(self.options.layout)
        return [SimulatedBroker(options, group, rank, f"{host}:{port}") for rank, host in enumerate(layout.hosts)]

    def _client(self, number: int) -> SimulatedClient:
        rng = random.Random(f"{self.options.seed}/client/{number}")  # noqa: S311 a simulation
        names = sorted(self._topics) or [next(iter(self.groups))]
        topics = rng.sample(names, min(len(names), rng.randint(1, MAX_TOPICS_PER_CLIENT)))
        return SimulatedClient(
            f"client-{number + 1}",
            topics,
            self.options.name_servers,
            rng=rng,
            journal=self.journal,
            counts=self.counts,
            follows_go_away=self.options.follows_go_away,
        )

    @property
    def brokers(self) -> list[SimulatedBroker]:
        return [broker for brokers in self.groups.values() for broker in brokers]

    async def start(self) -> None:
        """Returns after the first registration of every broker, successful or not. Clients start later, one by one."""
        await self._check_name_servers()
        layout, churn = asdict(self.options.layout), asdict(self.options.churn)
        self.journal.record(
            "begin",
            format=FORMAT,
            seed=self.options.seed,
            name_servers=list(self.options.name_servers),
            layout=layout,
            churn=churn,
            clients=self.options.clients,
            poll_s=self.options.poll_s,
            period_s=self.options.period_s,
            timeout_ms=self.options.timeout_ms,
        )
        # Masters first, because the response to a slave contains its master.
        for rank in range(1 + self.options.layout.slaves):
            await run_concurrently(
                [brokers[rank] for brokers in self.groups.values()], _start, max_concurrent=MAX_CONCURRENT
            )
        rng = random.Random(f"{self.options.seed}/clients")  # noqa: S311 a simulation
        for client in self._clients:
            self._spawn(client.run(rng.uniform(0, self.options.poll_s), self.options.poll_s))
        self._spawn(self._record_counts())

    async def run_plan(self) -> None:
        """Returns at the end of the plan; without a duration, never."""
        try:
            await self._run_plan()
        except ExceptionGroup as errors:
            # A step that fails ends the run. The exception group would only hide its error.
            raise errors.exceptions[0] from errors

    async def _run_plan(self) -> None:
        start = time.monotonic()
        async with asyncio.TaskGroup() as steps:
            for step in self._plan:
                await asyncio.sleep(max(start + step.at_s - time.monotonic(), 0))
                steps.create_task(self._troubles.execute(step))
            left_s = start + self.options.churn.duration_s - time.monotonic()
            if self.options.churn.duration_s:
                await asyncio.sleep(max(left_s, 0))
            else:
                await asyncio.Event().wait()

    async def end(self, *, orderly: bool = True) -> None:
        """Orderly: every broker deregisters, slaves first. Otherwise all stop at once, as if they were killed."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if orderly:
            for brokers in zip(*(reversed(sorted_by_broker_id(group)) for group in self.groups.values()), strict=True):
                up = [broker for broker in brokers if broker.state == "up"]
                await run_concurrently(up, SimulatedBroker.unregister_and_stop, max_concurrent=MAX_CONCURRENT)
        await run_concurrently(
            [broker for broker in self.brokers if broker.state != "down"],
            SimulatedBroker.crash,
            max_concurrent=MAX_CONCURRENT,
        )
        await run_concurrently(self._clients, SimulatedClient.close, max_concurrent=MAX_CONCURRENT)
        await self._troubles.close()
        self.journal.record("end", counts=self.counts.document())

    async def _check_name_servers(self) -> None:
        """A single name server may be down; when none can be reached, an address is probably wrong."""
        failures = []
        for address in self.options.name_servers:
            connection = ServerConnection(address)
            try:
                await connection.connect()
            except PeerUnavailableError as error:
                failures.append(error)
            finally:
                await connection.close()
        if len(failures) == len(self.options.name_servers):
            raise failures[0]

    async def _record_counts(self) -> None:
        while True:
            await asyncio.sleep(COUNTS_EVERY_S)
            self.journal.record("counts", counts=self.counts.document())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))


async def _start(broker: SimulatedBroker) -> None:
    await broker.start("start")
