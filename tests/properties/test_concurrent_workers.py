"""Several workers at once: whatever the interleaving, the end is one that some order of the operations explains."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import Registration
from routebook.model.topic import QueueData
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Namespace
from tests.properties import operations as op
from tests.properties.asking import Told, ask_reference, ask_store
from tests.properties.namespaces import fresh_namespace
from tests.properties.replay import assert_versions_without_holes, read_history, replay
from tests.properties.states import State, state_of_reference, state_of_store
from tests.properties.test_histories import quick, thorough
from tests.properties.whole_worker import WholeWorker, whole_worker
from tests.properties.world import standing_clock
from tests.reference.registry import ReferenceRegistry

WORKERS = 3


@asynccontextmanager
async def several_workers(namespace: Namespace, number: int = WORKERS) -> AsyncIterator[list[WholeWorker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(whole_worker(namespace, f"worker-{i + 1}")) for i in range(number)]


# -- any interleaving of small histories


concurrent = st.one_of(
    op.registrations().map(op.Register),
    op.registrations().map(op.Register),
    op.unregistrations,
    st.builds(op.RegisterTopic, op.topics, st.just((("broker-a", QueueData(1, 1)), ("broker-b", QueueData(2, 2))))),
    st.builds(op.DeleteTopic, op.topics, st.none() | op.clusters),
    st.builds(op.SetWritePermission, op.brokers, st.booleans()),
    st.builds(op.Heartbeat, op.clusters, op.addresses),
)
prologues = st.lists(op.registrations().map(op.Register), max_size=3)
lives = st.lists(st.lists(concurrent, min_size=1, max_size=3), min_size=2, max_size=WORKERS)

Step = tuple[op.Operation, Told]
"""What a worker asked, and what it was told."""


@dataclass
class Explanation:
    """Looks for an order in which one registry, asked one by one, gives the same answers and ends the same."""

    wanted: State
    tried: int = 0

    def exists(self, reference: ReferenceRegistry, lives_left: list[list[Step]]) -> bool:
        left = [life for life in lives_left if life]
        if not left:
            self.tried += 1
            return without_incarnations(state_of_reference(reference)) == self.wanted
        for at, life in enumerate(left):
            operation, told = life[0]
            branch = copy.deepcopy(reference)
            if ask_reference(branch, operation) != told:
                continue
            if self.exists(branch, [*left[:at], life[1:], *left[at + 1 :]]):
                return True
        return False


def without_incarnations(state: State) -> State:
    """Random, and which registration made one depends on the order that is looked for."""
    nameless = {member: replace(one, incarnation="") for member, one in state.instances.items()}
    return replace(state, instances=nameless)


async def live(worker: WholeWorker, operations: Sequence[op.Operation]) -> list[Step]:
    return [(operation, await ask_store(worker.namespace, worker, operation)) for operation in operations]


async def check_that_an_order_explains(
    client: StoreClient, prologue: list[op.Register], concurrent_lives: list[list[op.Operation]]
) -> None:
    async with fresh_namespace(client) as namespace, several_workers(namespace, len(concurrent_lives)) as workers:
        reference = ReferenceRegistry(standing_clock)
        for operation in prologue:
            told = await ask_store(namespace, workers[0], operation)
            assert told == ask_reference(reference, operation)
        steps = await asyncio.gather(
            *(live(worker, life) for worker, life in zip(workers, concurrent_lives, strict=True))
        )
        explanation = Explanation(without_incarnations(await state_of_store(namespace)))
        assert explanation.exists(reference, list(steps)), f"no order explains {steps}"
        await assert_equal_tables(namespace, workers)


async def assert_equal_tables(namespace: Namespace, workers: list[WholeWorker]) -> None:
    """All workers hold the same, and it is what the history says."""
    entries = await read_history(namespace)
    assert_versions_without_holes(entries, last=len(entries))
    assert replay(entries) == (await state_of_store(namespace)).route_table
    for worker in workers:
        await worker.catch_up()
    assert len({worker.replica.table.digest for worker in workers}) == 1


@given(prologues, lives)
@settings(quick, max_examples=250)
async def test_some_order_explains_what_several_workers_did_at_once(
    client: StoreClient, prologue: list[op.Register], concurrent_lives: list[list[op.Operation]]
) -> None:
    await check_that_an_order_explains(client, prologue, concurrent_lives)


@pytest.mark.slow
@given(prologues, lives)
@settings(thorough, max_examples=2000)
async def test_some_order_explains_what_several_workers_did_for_long(
    client: StoreClient, prologue: list[op.Register], concurrent_lives: list[list[op.Operation]]
) -> None:
    await check_that_an_order_explains(client, prologue, concurrent_lives)


# -- a hundred at once


def member(number: int, seats: int) -> Registration:
    """Member `number % seats` of its group; all of a group publish the same topics."""
    group, seat = divmod(number, seats)
    return Registration(
        cluster="east",
        broker=f"broker-{group}",
        broker_id=seat,
        address=f"127.0.{group}.{seat + 1}:10911",
        ha_address=f"127.0.{group}.{seat + 1}:10912",
        acting_master=False,
        topics={f"topic-{group}-{i}": QueueData(4, 4) for i in range(20)} | {"shared": QueueData(2, 2)},
    )


async def test_a_hundred_registrations_at_once_end_in_the_one_right_state(namespace: Namespace) -> None:
    fleet = [member(number, seats=5) for number in range(100)]
    reference = ReferenceRegistry(standing_clock)
    for said in fleet:
        reference.register(said, "")
    async with several_workers(namespace) as workers:
        results = await asyncio.gather(*(workers[number % WORKERS].register(said) for number, said in enumerate(fleet)))
        assert {result.status for result in results} == {"changed"}
        assert len({result.incarnation for result in results}) == len(fleet)
        assert without_incarnations(await state_of_store(namespace)) == without_incarnations(
            state_of_reference(reference)
        )
        await assert_equal_tables(namespace, workers)


def rival(number: int) -> Registration:
    """Wants the seat that all the others want, and brings one topic of its own."""
    topics = {f"topic-{number}": QueueData(number + 1, 1)}
    return replace(member(0, seats=1), address=f"127.0.1.{number + 1}:10911", topics=topics, full=True)


async def test_of_a_hundred_that_want_one_seat_at_once_one_holds_it(namespace: Namespace) -> None:
    rivals = [rival(number) for number in range(100)]
    async with several_workers(namespace) as workers:
        await asyncio.gather(*(workers[n % WORKERS].register(said) for n, said in enumerate(rivals)))
        state = await state_of_store(namespace)
        addresses = state.groups["broker-0"].addresses
        assert len(addresses) == 1
        assert addresses[0] in {said.address for said in rivals}
        assert state.queues["broker-0"] == {topic: data for said in rivals for topic, data in said.topics.items()}
        last = (await read_history(namespace))[-1][2]
        assert (last["kind"], last["addr"]) == ("broker-registered", addresses[0])
        await assert_equal_tables(namespace, workers)
