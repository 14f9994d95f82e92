"""Any history of any operations ends, after every step, in the state that the plain rules give."""

import pytest
from hypothesis import HealthCheck, given, settings

from routebook.store import registration
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Namespace
from tests.properties import operations as op
from tests.properties.lagging_replica import lagging_replica
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import PlainWorker
from tests.properties.replay import (
    Entry,
    assert_every_entry_is_complete,
    assert_versions_without_holes,
    read_history,
    replay,
)
from tests.properties.states import State, state_of_store
from tests.properties.whole_worker import whole_worker
from tests.properties.world import World
from tests.reference.route_at import queues_at, seats_at

ON_A_REAL_STORE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
# The same histories each time, so that a change is judged by what it does; new ones are looked for by the slow lane.
quick = settings(max_examples=200, deadline=None, suppress_health_check=ON_A_REAL_STORE, derandomize=True)
thorough = settings(max_examples=1500, deadline=None, suppress_health_check=ON_A_REAL_STORE)


async def through_scripts(client: StoreClient, history: list[op.Operation]) -> None:
    async with fresh_namespace(client) as namespace:
        world = await World.begin(namespace, PlainWorker(namespace))
        await world.live_through(history)
        await world.repeat_everything()
        await check_the_history(namespace)


async def through_the_registry(client: StoreClient, history: list[op.Operation]) -> None:
    async with (
        fresh_namespace(client) as namespace,
        whole_worker(namespace) as worker,
        lagging_replica(namespace) as lagging,
    ):
        world = await World.begin(namespace, worker)
        world.lagging.append(lagging)
        await world.live_through([*history, op.Follow()])
        await world.repeat_everything()
        await check_the_history(namespace)
        await worker.catch_up()
        await lagging.follow()
        assert worker.replica.table.digest == lagging.replica.table.digest


def prepare_in_parts(patched: pytest.MonkeyPatch) -> None:
    """From the first topic on, one topic a part."""
    patched.setattr(registration, "STAGE_FROM_TOPICS", 1)
    patched.setattr(registration, "TOPICS_PER_STAGE", 1)
    patched.setattr(registration, "ITEMS_PER_CHUNK", 1)


async def check_the_history(namespace: Namespace) -> None:
    entries = await read_history(namespace)
    version = int(await namespace.client.call("HGET", namespace.keys.meta, "version") or 0)
    assert_versions_without_holes(entries, last=version)
    assert_every_entry_is_complete(entries)
    state = await state_of_store(namespace)
    assert replay(entries) == state.route_table
    check_the_formulas(entries, state)


def check_the_formulas(entries: list[Entry], state: State) -> None:
    shown = {(topic, broker): data for broker, queues in state.queues.items() for topic, data in queues.items()}
    assert queues_at(entries) == {
        key: (data.read_queues, data.write_queues, data.perm, data.flags) for key, data in shown.items()
    }
    assert seats_at(entries) == {
        (broker, broker_id): address
        for broker, group in state.groups.items()
        for broker_id, address in group.addresses.items()
    }


@given(op.histories)
@quick
async def test_scripts_do_what_the_rules_say(client: StoreClient, history: list[op.Operation]) -> None:
    await through_scripts(client, history)


@given(op.histories)
@quick
async def test_the_registry_does_what_the_rules_say(client: StoreClient, history: list[op.Operation]) -> None:
    await through_the_registry(client, history)


@given(op.histories)
@settings(quick, max_examples=60)
async def test_registrations_prepared_in_parts_do_what_the_rules_say(
    client: StoreClient, history: list[op.Operation]
) -> None:
    """As only tables of thousands of topics are otherwise."""
    with pytest.MonkeyPatch.context() as patched:
        prepare_in_parts(patched)
        await through_the_registry(client, history)


@pytest.mark.slow
@given(op.histories)
@thorough
async def test_scripts_keep_to_the_rules_for_long(client: StoreClient, history: list[op.Operation]) -> None:
    await through_scripts(client, history)


@pytest.mark.slow
@given(op.histories)
@thorough
async def test_the_registry_keeps_to_the_rules_for_long(client: StoreClient, history: list[op.Operation]) -> None:
    await through_the_registry(client, history)
