"""A past table is what the formulas of the history give for that instant, whatever happened."""

import pytest
from hypothesis import given, settings

from routebook.errors import PastUnknownError
from routebook.registry.past_tables import PastTable, PastTables, compare_tables
from routebook.store.connection.client import StoreClient
from routebook.store.history import write_baseline
from tests.properties import operations as op
from tests.properties.comparison import Comparison
from tests.properties.namespaces import fresh_namespace
from tests.properties.plain_worker import CALLER, PlainWorker
from tests.properties.replay import Entry, read_history
from tests.properties.test_baselines import finish
from tests.properties.test_histories import quick
from tests.reference.route_at import queues_at, seats_at


def check(table: PastTable, entries: list[Entry]) -> None:
    queues = {
        (topic, broker): (queue.read_queues, queue.write_queues, queue.perm, queue.flags)
        for broker, topics in table.queues.items()
        for topic, queue in topics.items()
    }
    assert queues == queues_at(entries)
    assert {seat: taken.address for seat, taken in table.seats.items()} == seats_at(entries)


@given(op.histories)
@settings(quick, max_examples=40)
async def test_the_table_of_each_instant_follows_from_the_entries_before(
    client: StoreClient, history: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(history)
        entries = await read_history(namespace)
        moments = sorted({ms for ms, _, _ in entries})
        if not moments:
            return
        tables = await PastTables(namespace).tables_at(moments)
        for moment, table in zip(moments, tables, strict=True):
            check(table, [entry for entry in entries if entry[0] <= moment])
        difference = compare_tables(tables[0], tables[-1])
        assert (difference.seats, difference.queues) == ([], []) or len(moments) > 1


@given(op.histories, op.histories)
@settings(quick, max_examples=25)
async def test_a_baseline_is_enough_when_what_was_before_it_is_trimmed(
    client: StoreClient, before: list[op.Operation], after: list[op.Operation]
) -> None:
    async with fresh_namespace(client) as namespace:
        comparison = await Comparison.begin(namespace, PlainWorker(namespace))
        await comparison.run(before)
        entries = await read_history(namespace)
        await finish(write_baseline(namespace, comparison.lease.whole, caller=CALLER, cause="operator"))
        begin = len(entries)
        await comparison.run(after)
        entries = await read_history(namespace)
        first = entries[begin]
        await client.call("XTRIM", namespace.keys.changes, "MINID", "=", f"{first[0]}-{first[1]}")
        last_ms = entries[-1][0]
        (table,) = await PastTables(namespace).tables_at([last_ms])
        check(table, entries)
        if begin and entries[begin - 1][0] < first[0]:
            with pytest.raises(PastUnknownError):
                await PastTables(namespace).tables_at([entries[begin - 1][0]])
