"""A reader that begins at a baseline can rebuild the whole table."""

from collections.abc import AsyncGenerator

from hypothesis import given, settings

from routebook.store.connection.client import StoreClient
from routebook.store.history import write_baseline
from tests.properties import operations as op
from tests.properties.comparison import Comparison
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.properties.replay import Entry, assert_every_entry_is_complete, read_history, replay
from tests.properties.states import state_of_store
from tests.properties.test_histories import check_formulas, quick


async def finish(baseline: AsyncGenerator[int]) -> None:
    async for _ in baseline:
        pass


def since_the_baseline(entries: list[Entry]) -> list[Entry]:
    begin = max(version for _, version, payload in entries if payload["kind"] == "baseline-begin")
    return [entry for entry in entries if entry[1] >= begin]


@given(op.histories)
@settings(quick, max_examples=150)
async def test_the_table_is_rebuilt_from_a_baseline_alone(client: StoreClient, history: list[op.Operation]) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(history)
        before = await state_of_store(namespace)
        await finish(write_baseline(namespace, comparison.lease.whole, caller=CALLER, cause="operator"))
        state = await state_of_store(namespace)
        assert state == before
        entries = await read_history(namespace)
        assert_every_entry_is_complete(entries)
        assert replay(since_the_baseline(entries)) == state.route_table
        check_formulas(since_the_baseline(entries), state)
        check_formulas(entries, state)
        assert replay(entries) == state.route_table


@given(op.histories, op.histories)
@settings(quick, max_examples=150)
async def test_changes_may_fall_between_the_parts_of_a_baseline(
    client: StoreClient, before: list[op.Operation], between: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(before)
        waiting = iter(between)
        async for _ in write_baseline(namespace, comparison.lease.whole, caller=CALLER, cause="operator"):
            await comparison.run([operation for _, operation in zip(range(3), waiting, strict=False)])
        state = await state_of_store(namespace)
        check_formulas(since_the_baseline(await read_history(namespace)), state)


@given(op.histories, op.histories)
@settings(quick, max_examples=100)
async def test_a_baseline_repairs_what_a_reader_missed(
    client: StoreClient, before: list[op.Operation], missed: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(before)
        seen = len(await read_history(namespace))
        await comparison.run(missed)
        unseen = len(await read_history(namespace))
        await finish(write_baseline(namespace, comparison.lease.whole, caller=CALLER, cause="trimmed"))
        entries = await read_history(namespace)
        check_formulas(entries[:seen] + entries[unseen:], await state_of_store(namespace))
