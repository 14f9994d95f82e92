"""After each operation of any history, the store has the state of the reference model."""

import pytest
from hypothesis import HealthCheck, given, settings

from routebook.store import namespace as store_namespace
from routebook.store import registration, staging
from routebook.store.connection.client import StoreClient
from routebook.store.namespace import Namespace
from tests.properties import namespaces
from tests.properties import operations as op
from tests.properties.comparison import Comparison
from tests.properties.lagging_replica import lagging_replica
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import PlainWorker
from tests.properties.replay import (
    Entry,
    assert_every_entry_is_complete,
    assert_versions_without_gaps,
    read_history,
    replay,
)
from tests.properties.states import State, state_of_store
from tests.properties.whole_worker import whole_worker
from tests.reference.route_at import queues_at, seats_at
from tests.support.scripts import with_lua_limit

ON_A_REAL_STORE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
# The quick tests use the same histories each time, so that their result depends on the code alone. The slow tests use
# new ones.
quick = settings(max_examples=200, deadline=None, suppress_health_check=ON_A_REAL_STORE, derandomize=True)
thorough = settings(max_examples=1500, deadline=None, suppress_health_check=ON_A_REAL_STORE)


async def check_scripts(client: StoreClient, history: list[op.Operation]) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(history)
        await comparison.repeat_everything()
        await check_history(namespace)


async def check_registry(client: StoreClient, history: list[op.Operation]) -> None:
    async with (
        fresh_namespace(client) as namespace,
        whole_worker(namespace) as worker,
        lagging_replica(namespace) as lagging,
    ):
        comparison = await Comparison.begin(namespace, worker)
        comparison.lagging.append(lagging)
        await comparison.run([*history, op.CatchUp()])
        await comparison.repeat_everything()
        await check_history(namespace)
        await worker.catch_up()
        await lagging.catch_up()
        assert worker.replica.table.digest == lagging.replica.table.digest


def stage_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages all registrations and changes of permissions, however few topics they have, and one topic at a time."""
    monkeypatch.setattr(registration, "STAGE_FROM_TOPICS", 1)
    monkeypatch.setattr(staging, "TOPICS_PER_STAGE", 1)
    monkeypatch.setattr(store_namespace, "ITEMS_PER_CHUNK", 1)
    monkeypatch.setattr(namespaces, "SCRIPTS", with_lua_limit(namespaces.SCRIPTS, "ENTRIES_AT_ONCE", 0))


async def check_history(namespace: Namespace) -> None:
    entries = await read_history(namespace)
    version = int(await namespace.client.call("HGET", namespace.keys.meta, "version") or 0)
    assert_versions_without_gaps(entries, last=version)
    assert_every_entry_is_complete(entries)
    state = await state_of_store(namespace)
    assert replay(entries) == state.route_table
    check_formulas(entries, state)


def check_formulas(entries: list[Entry], state: State) -> None:
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
async def test_scripts_agree_with_the_reference_model(client: StoreClient, history: list[op.Operation]) -> None:
    await check_scripts(client, history)


@given(op.histories)
@quick
async def test_the_registry_agrees_with_the_reference_model(client: StoreClient, history: list[op.Operation]) -> None:
    await check_registry(client, history)


@given(op.histories)
@settings(quick, max_examples=60)
async def test_staged_changes_agree_with_the_reference_model(client: StoreClient, history: list[op.Operation]) -> None:
    """Otherwise only groups with thousands of topics are staged."""
    with pytest.MonkeyPatch.context() as patched:
        stage_in_small_parts(patched)
        await check_registry(client, history)


@pytest.mark.slow
@given(op.histories)
@thorough
async def test_scripts_agree_with_the_reference_model_in_many_histories(
    client: StoreClient, history: list[op.Operation]
) -> None:
    await check_scripts(client, history)


@pytest.mark.slow
@given(op.histories)
@thorough
async def test_the_registry_agrees_with_the_reference_model_in_many_histories(
    client: StoreClient, history: list[op.Operation]
) -> None:
    await check_registry(client, history)
