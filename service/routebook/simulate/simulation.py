"""The whole simulated fleet: its start, the execution of the plan step by step (`Troubles`), and its end."""

import asyncio
import random
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from routebook.compare.collecting import run_concurrently
from routebook.errors import InvalidInputError, PeerUnavailableError
from routebook.model.broker import QueueData
from routebook.protocol.frame import RequestCode
from routebook.simulate.broker import (
    BrokerOptions,
    GroupState,
    SimulatedBroker,
    TopicTable,
    call_and_describe,
    clamp_period,
    queue_numbers,
)
from routebook.simulate.client import ServerConnection, SimulatedClient
from routebook.simulate.plan import (
    PORTS_PER_HOST,
    Churn,
    GroupLayout,
    Layout,
    Step,
    groups_of,
    plan,
    port_of,
    system_topics,
    topics_of,
)
from routebook.simulate.records import FORMAT, Counts, Journal, now_ms

OPERATOR_MS: Final = 5_000
"""The timeout of mqadmin for requests to a name server."""


class Troubles:
    def __init__(
        self, groups: Mapping[str, list[SimulatedBroker]], name_servers: Sequence[str], journal: Journal, counts: Counts
    ) -> None:
        self._groups = groups
        self._operator_connections = [ServerConnection(address) for address in name_servers]
        self._journal = journal
        self._counts = counts

    async def close(self) -> None:
        for connection in self._operator_connections:
            await connection.close()

    async def execute(self, step: Step) -> None:
        """Returns when the trouble is over."""
        self._journal.record("planned", kind=step.kind, at_s=round(step.at_s, 3), groups=step.groups, topic=step.topic)
        self._counts.troubles[step.kind] += 1
        match step.kind:
            case "topic-created" | "topic-resized":
                async with asyncio.TaskGroup() as tasks:
                    for name in step.groups:
                        tasks.create_task(self._change_topic(step, name, step.queue))
            case "topic-deleted":
                await self._delete_topic(step)
            case _:
                brokers = self._groups[step.groups[0]]
                async with brokers[0].group.trouble_lock:
                    await self._execute_for_group(step, brokers)

    async def _execute_for_group(self, step: Step, brokers: list[SimulatedBroker]) -> None:
        broker = sorted_by_broker_id(brokers)[step.rank % len(brokers)]
        match step.kind:
            case "crash":
                await broker.crash()
                await self._restart(broker, step.lasts_s)
            case "deploy":
                await broker.unregister_and_stop()
                if step.moves:
                    broker.address = with_next_port(broker.address)
                await self._restart(broker, step.lasts_s)
            case "silence":
                await broker.become_silent()
                await asyncio.sleep(step.lasts_s)
                await self._raise_version(broker)
                await broker.resume()
            case "flap":
                for down_s, up_s in step.downs:
                    await broker.crash()
                    await self._restart(broker, down_s)
                    await asyncio.sleep(up_s)
            case "switch":
                await self._switch(step, brokers)
            case "permission":
                await self._set_write_permission(broker.group, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
                await asyncio.sleep(step.lasts_s)
                await self._set_write_permission(broker.group, RequestCode.ADD_WRITE_PERM_OF_BROKER)

    async def _restart(self, broker: SimulatedBroker, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._raise_version(broker)
        await broker.start("return")

    @staticmethod
    async def _raise_version(broker: SimulatedBroker) -> None:
        """Makes a name server that did not notice the absence apply the topics again too, so that the result does not
        depend on timing.
        """
        async with broker.group.send_lock:
            broker.group.table.raise_version()

    async def _switch(self, step: Step, brokers: list[SimulatedBroker]) -> None:
        old = sorted_by_broker_id(brokers)[0]
        new = sorted_by_broker_id(brokers)[step.rank % len(brokers)]
        if step.lasts_s:
            await old.crash()
            await asyncio.sleep(step.lasts_s)
        async with old.group.send_lock:
            old.group.table.raise_version(state_versions=1)
            former_id = new.broker_id
            new.broker_id, old.broker_id = old.broker_id, former_id
            self._journal.record(
                "switched",
                cluster=old.group.cluster,
                broker=old.group.name,
                master=new.address,
                former=old.address,
                id_of_former=former_id,
            )
            await new.register_now("switch")
            await old.register_now("switch")
        if step.then_s:
            await self._restart(old, step.then_s)

    # -- operators

    async def _set_write_permission(self, group: GroupState, code: RequestCode) -> None:
        async with group.send_lock:
            sent_ms, answers = now_ms(), await self._request_from_all(code, {"brokerName": group.name})
            self._journal.record(
                "write-permission",
                cluster=group.cluster,
                broker=group.name,
                writable=code is RequestCode.ADD_WRITE_PERM_OF_BROKER,
                sent_ms=sent_ms,
                servers=answers,
            )

    async def _request_from_all(self, code: RequestCode, ext: dict[str, str]) -> dict[str, dict[str, object]]:
        calls = [
            call_and_describe(connection, code, ext, timeout_ms=OPERATOR_MS, counts=self._counts)
            for connection in self._operator_connections
        ]
        outcomes = await asyncio.gather(*calls)
        addresses = [connection.address for connection in self._operator_connections]
        return dict(zip(addresses, outcomes, strict=True))

    async def _change_topic(self, step: Step, name: str, queue: QueueData) -> None:
        """Changes the topic at the broker, which registers this topic alone at once."""
        brokers = self._groups[name]
        master = sorted_by_broker_id(brokers)[0]
        group = master.group
        async with group.trouble_lock, group.send_lock:
            if step.kind == "topic-resized" and step.topic not in group.table.topics:
                return  # It has been deleted in the meantime.
            group.table.put(step.topic, queue)
            self._journal.record(
                step.kind, cluster=group.cluster, broker=name, topic=step.topic, queue=queue_numbers(queue)
            )
            await master.register_now(step.kind, {step.topic: queue})

    async def _delete_topic(self, step: Step) -> None:
        """Like mqadmin, deletes it at the brokers first, then at the name servers, for the whole cluster. Meanwhile no
        broker of the cluster sends requests, because a registration could restore the topic.
        """
        groups = [
            brokers[0].group for _, brokers in sorted(self._groups.items()) if brokers[0].group.cluster == step.cluster
        ]
        async with AsyncExitStack() as stack:
            for group in groups:
                await stack.enter_async_context(group.send_lock)
            had = [group.name for group in groups if group.table.remove(step.topic)]
            sent_ms = now_ms()
            ext = {"topic": step.topic, "clusterName": step.cluster}
            answers = await self._request_from_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)
            self._journal.record(
                "topic-deleted", cluster=step.cluster, topic=step.topic, brokers=had, sent_ms=sent_ms, servers=answers
            )


def sorted_by_broker_id(brokers: list[SimulatedBroker]) -> list[SimulatedBroker]:
    return sorted(brokers, key=lambda broker: broker.broker_id)


def with_next_port(address: str) -> str:
    """The address with the next port of its host; after the last one, the first again."""
    host, _, port = address.rpartition(":")
    base, offset = divmod(int(port), PORTS_PER_HOST)
    return f"{host}:{base * PORTS_PER_HOST + (offset + 1) % PORTS_PER_HOST}"


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
