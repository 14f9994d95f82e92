"""The result of several concurrent workers is always that of some sequential order of their operations."""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import QueueData, Registration
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Namespace
from tests.properties import operations as op
from tests.properties.comparison import fixed_clock
from tests.properties.namespaces import fresh_namespace
from tests.properties.outcomes import Outcome, apply_to_reference, apply_to_store
from tests.properties.replay import assert_versions_without_gaps, read_history, replay
from tests.properties.states import State, state_of_reference, state_of_store
from tests.properties.test_histories import quick, thorough
from tests.properties.whole_worker import WholeWorker, whole_worker
from tests.reference.registry import ReferenceRegistry

WORKERS = 3


@asynccontextmanager
async def several_workers(namespace: Namespace, number: int = WORKERS) -> AsyncIterator[list[WholeWorker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(whole_worker(namespace, f"worker-{i + 1}")) for i in range(number)]


# Short concurrent histories


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
concurrent_histories = st.lists(st.lists(concurrent, min_size=1, max_size=3), min_size=2, max_size=WORKERS)

Step = tuple[op.Operation, Outcome]
"""An operation of a worker, and its outcome."""


@dataclass
class SequentialOrder:
    """Searches an order in which the reference model has the same outcomes and the same final state."""

    wanted: State
    tried: int = 0

    def exists(self, reference: ReferenceRegistry, remaining: list[list[Step]]) -> bool:
        left = [steps for steps in remaining if steps]
        if not left:
            self.tried += 1
            return without_incarnations(state_of_reference(reference)) == self.wanted
        for at, steps in enumerate(left):
            operation, outcome = steps[0]
            branch = copy.deepcopy(reference)
            if apply_to_reference(branch, operation) != outcome:
                continue
            if self.exists(branch, [*left[:at], steps[1:], *left[at + 1 :]]):
                return True
        return False


def without_incarnations(state: State) -> State:
    """Incarnations are random, and which registration created one depends on the order."""
    instances = {name: replace(instance, incarnation="") for name, instance in state.instances.items()}
    return replace(state, instances=instances)


async def apply_all(worker: WholeWorker, operations: Sequence[op.Operation]) -> list[Step]:
    return [(operation, await apply_to_store(worker.namespace, worker, operation)) for operation in operations]


async def check_sequential_order(
    client: StoreClient, prologue: list[op.Register], histories: list[list[op.Operation]]
) -> None:
    async with fresh_namespace(client) as namespace, several_workers(namespace, len(histories)) as workers:
        reference = ReferenceRegistry(fixed_clock)
        for operation in prologue:
            outcome = await apply_to_store(namespace, workers[0], operation)
            assert outcome == apply_to_reference(reference, operation)
        steps = await asyncio.gather(
            *(apply_all(worker, operations) for worker, operations in zip(workers, histories, strict=True))
        )
        order = SequentialOrder(without_incarnations(await state_of_store(namespace)))
        assert order.exists(reference, list(steps)), f"no sequential order of {steps}"
        await assert_equal_tables(namespace, workers)


async def assert_equal_tables(namespace: Namespace, workers: list[WholeWorker]) -> None:
    """All workers have the same table, and the history yields it as well."""
    entries = await read_history(namespace)
    assert_versions_without_gaps(entries, last=len(entries))
    assert replay(entries) == (await state_of_store(namespace)).route_table
    for worker in workers:
        await worker.catch_up()
    assert len({worker.replica.table.digest for worker in workers}) == 1


@given(prologues, concurrent_histories)
@settings(quick, max_examples=250)
async def test_concurrent_workers_have_the_result_of_some_sequential_order(
    client: StoreClient, prologue: list[op.Register], histories: list[list[op.Operation]]
) -> None:
    await check_sequential_order(client, prologue, histories)


@pytest.mark.slow
@given(prologues, concurrent_histories)
@settings(thorough, max_examples=2000)
async def test_concurrent_workers_have_the_result_of_some_sequential_order_in_many_runs(
    client: StoreClient, prologue: list[op.Register], histories: list[list[op.Operation]]
) -> None:
    await check_sequential_order(client, prologue, histories)


# A hundred registrations at once


def fleet_broker(number: int, seats: int) -> Registration:
    """Broker `number % seats` of its group. All brokers of a group have the same topics."""
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


async def test_a_hundred_concurrent_registrations_have_the_sequential_result(namespace: Namespace) -> None:
    fleet = [fleet_broker(number, seats=5) for number in range(100)]
    reference = ReferenceRegistry(fixed_clock)
    for registration in fleet:
        reference.register(registration, "")
    async with several_workers(namespace) as workers:
        results = await asyncio.gather(
            *(workers[number % WORKERS].register(registration) for number, registration in enumerate(fleet))
        )
        assert {result.status for result in results} == {"changed"}
        assert len({result.incarnation for result in results}) == len(fleet)
        assert without_incarnations(await state_of_store(namespace)) == without_incarnations(
            state_of_reference(reference)
        )
        await assert_equal_tables(namespace, workers)


def rival(number: int) -> Registration:
    """A broker that registers for the same seat as all others, with a topic of its own."""
    topics = {f"topic-{number}": QueueData(number + 1, 1)}
    return replace(fleet_broker(0, seats=1), address=f"127.0.1.{number + 1}:10911", topics=topics, full=True)


async def test_one_of_a_hundred_concurrent_registrations_gets_the_seat(namespace: Namespace) -> None:
    rivals = [rival(number) for number in range(100)]
    async with several_workers(namespace) as workers:
        await asyncio.gather(*(workers[n % WORKERS].register(registration) for n, registration in enumerate(rivals)))
        state = await state_of_store(namespace)
        addresses = state.groups["broker-0"].addresses
        assert len(addresses) == 1
        assert addresses[0] in {registration.address for registration in rivals}
        assert state.queues["broker-0"] == {
            topic: data for registration in rivals for topic, data in registration.topics.items()
        }
        last = (await read_history(namespace))[-1][2]
        assert (last["kind"], last["addr"]) == ("broker-registered", addresses[0])
        await assert_equal_tables(namespace, workers)
