"""A baseline makes the history complete in itself: whoever reads from there on knows the whole table."""

from collections.abc import AsyncGenerator

from hypothesis import given, settings

from routebook.store.connection.client import StoreClient
from routebook.store.history import write_baseline
from tests.properties import operations as op
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.properties.replay import Entry, assert_every_entry_is_complete, read_history, replay
from tests.properties.states import state_of_store
from tests.properties.test_histories import check_the_formulas, quick
from tests.properties.world import World


async def to_the_end(baseline: AsyncGenerator[int]) -> None:
    async for _ in baseline:
        pass


def from_the_baseline(entries: list[Entry]) -> list[Entry]:
    begin = max(version for _, version, payload in entries if payload["kind"] == "baseline-begin")
    return [entry for entry in entries if entry[1] >= begin]


@given(op.histories)
@settings(quick, max_examples=150)
async def test_the_table_is_rebuilt_from_a_baseline_alone(client: StoreClient, history: list[op.Operation]) -> None:
    async with fresh_namespace(client) as namespace:
        world = await World.begin(namespace, PlainWorker(namespace))
        await world.live_through(history)
        before = await state_of_store(namespace)
        await to_the_end(write_baseline(namespace, world.lease.whole, caller=CALLER, cause="operator"))
        state = await state_of_store(namespace)
        assert state == before
        entries = await read_history(namespace)
        assert_every_entry_is_complete(entries)
        assert replay(from_the_baseline(entries)) == state.route_table
        check_the_formulas(from_the_baseline(entries), state)
        check_the_formulas(entries, state)
        assert replay(entries) == state.route_table


@given(op.histories, op.histories)
@settings(quick, max_examples=150)
async def test_changes_may_fall_between_the_parts_of_a_baseline(
    client: StoreClient, before: list[op.Operation], between: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        world = await World.begin(namespace, PlainWorker(namespace))
        await world.live_through(before)
        waiting = iter(between)
        async for _ in write_baseline(namespace, world.lease.whole, caller=CALLER, cause="operator"):
            await world.live_through([operation for _, operation in zip(range(3), waiting, strict=False)])
        state = await state_of_store(namespace)
        check_the_formulas(from_the_baseline(await read_history(namespace)), state)


@given(op.histories, op.histories)
@settings(quick, max_examples=100)
async def test_a_baseline_repairs_what_a_reader_missed(
    client: StoreClient, before: list[op.Operation], missed: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        world = await World.begin(namespace, PlainWorker(namespace))
        await world.live_through(before)
        seen = len(await read_history(namespace))
        await world.live_through(missed)
        unseen = len(await read_history(namespace))
        await to_the_end(write_baseline(namespace, world.lease.whole, caller=CALLER, cause="trimmed"))
        entries = await read_history(namespace)
        check_the_formulas(entries[:seen] + entries[unseen:], await state_of_store(namespace))
