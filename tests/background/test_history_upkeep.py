"""The leader trims the history to what readers need, and writes the whole table into it when a baseline is due."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from routebook.background import history_upkeep
from routebook.background.history_upkeep import HistoryUpkeep
from routebook.errors import EpochEndedError, StoreUnavailableError
from routebook.registry.status import history_bound
from routebook.settings import Settings
from routebook.store.administration import put_kv
from routebook.store.history import (
    Change,
    FencedError,
    HistoryState,
    Mark,
    Reader,
    append_baseline,
    changes_between,
    read_baseline_state,
    read_history_state,
    request_baseline,
    trim_history,
    write_baseline,
)
from routebook.store.namespace import Namespace
from routebook.store.workers import acquire_lease, open_namespace
from tests.reference.build import registration, topics
from tests.replica.build import A
from tests.replica.following import client_at
from tests.replica.following import register as register_plain
from tests.support.fault_proxy import FaultProxy
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.scripts import history, kinds

NOW = 1_000_000_000_000
DAY_MS = 86_400_000


def state(**changes: Any) -> HistoryState:
    defaults: dict[str, Any] = {
        "newest": 300_000,
        "newest_ms": NOW,
        "entries": 300_000,
        "written_bytes": 60_000_000,
        "marks": [],
        "readers": [],
        "unreadable_readers": [],
        "now_ms": NOW,
    }
    return HistoryState(**(defaults | changes))


def test_without_readers_the_minimum_is_kept() -> None:
    bound = history_bound(state(), Settings())
    assert (bound.below, bound.keep, bound.reason) == (200_000, 200_000, "history_min_entries")


def test_the_history_is_kept_for_the_slowest_reader() -> None:
    readers = [Reader("lake", 150_000, NOW), Reader("other", 250_000, NOW)]
    bound = history_bound(state(readers=readers), Settings())
    assert (bound.below, bound.keep, bound.reason, bound.reader) == (150_000, 150_000, "reader", "lake")


def test_nothing_is_kept_for_a_reader_that_has_not_reported_for_a_week() -> None:
    readers = [Reader("lake", 1, NOW - 7 * DAY_MS - 1)]
    assert history_bound(state(readers=readers), Settings()).reason == "history_min_entries"
    assert history_bound(state(readers=[Reader("lake", 1, NOW - 7 * DAY_MS)]), Settings()).reason == "reader"


def test_the_hard_limit_applies_even_to_a_reader_that_is_behind() -> None:
    readers = [Reader("lake", 10, NOW)]
    bound = history_bound(state(readers=readers), Settings(history_hard_limit=120_000))
    assert (bound.below, bound.keep, bound.reason) == (180_000, 10, "history_hard_limit")


def test_the_limit_in_bytes_applies_before_the_minimum_of_entries() -> None:
    marks = [Mark(n * 10_000, n * 40_000_000) for n in range(1, 30)]
    bound = history_bound(state(written_bytes=1_200_000_000, marks=marks), Settings())
    assert (bound.below, bound.keep, bound.reason) == (240_001, 200_000, "history_max_bytes")


def test_nothing_of_a_short_history_is_trimmed() -> None:
    bound = history_bound(state(newest=5, entries=5), Settings())
    assert (bound.below, bound.keep, bound.reason) == (0, 0, "history_min_entries")


async def fill(namespace: Namespace, entries: int) -> None:
    for n in range(entries):
        await put_kv(namespace, "ns", f"k{n % 50}", f"v{n}", caller=CALLER)


def upkeep_of(worker: InProcessWorker) -> HistoryUpkeep:
    return HistoryUpkeep(worker.namespace, worker.replica, worker.live, worker.name, worker.metrics)


def lost(worker: InProcessWorker) -> float:
    return worker.metrics.registry.get_sample_value("routebook_history_lost_entries_total") or 0.0


async def report_position(namespace: Namespace, reader: str, position: str) -> None:
    await namespace.client.call("HSET", namespace.keys.readers, reader, position)


async def now_of(namespace: Namespace) -> int:
    return (await read_history_state(namespace)).now_ms


async def test_entries_that_readers_have_are_trimmed_and_others_are_kept(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, history_min_entries=1000) as worker:
        namespace = worker.namespace
        await fill(namespace, 2500)
        await report_position(namespace, "lake", f"700 {await now_of(namespace)}")
        await upkeep_of(worker).trim()
        first = (await read_history_state(namespace)).first
        assert 600 <= first <= 700
        await report_position(namespace, "lake", f"2400 {await now_of(namespace)}")
        await upkeep_of(worker).trim()
        assert 1400 <= (await read_history_state(namespace)).first <= 1500
        assert lost(worker) == 0


async def test_entries_that_a_reader_misses_are_counted_and_need_a_baseline(
    store_url: str, namespace_name: str
) -> None:
    settings = {"history_min_entries": 1000, "history_hard_limit": 1500}
    async with running_worker(store_url, namespace_name, **settings) as worker:
        namespace = worker.namespace
        await fill(namespace, 2500)
        await report_position(namespace, "lake", f"10 {await now_of(namespace)}")
        await upkeep_of(worker).trim()
        first = (await read_history_state(namespace)).first
        assert 900 <= first <= 1000
        assert lost(worker) == first - 10
        assert (await read_baseline_state(namespace)).requested == "trimmed"


async def test_a_reader_that_misses_what_two_leaders_trimmed_gets_a_baseline(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a change of leaders, both may trim. Together they remove the last baseline, and neither alone."""

    async def read_while_the_former_leader_trims(namespace: Namespace) -> HistoryState:
        state = await read_history_state(namespace)
        assert await trim_history(namespace, state, 600) >= 500
        return state

    settings = {"history_min_entries": 1000, "history_hard_limit": 1500}
    async with running_worker(store_url, namespace_name, **settings) as worker:
        namespace = worker.namespace
        await fill(namespace, 2500)
        await report_position(namespace, "lake", f"10 {await now_of(namespace)}")
        await namespace.client.call("HSET", namespace.keys.meta, "baseline_begin", 580)
        monkeypatch.setattr(history_upkeep, "read_history_state", read_while_the_former_leader_trims)
        await upkeep_of(worker).trim()
        assert (await read_baseline_state(namespace)).requested == "trimmed"


async def test_the_metrics_show_used_limits_and_the_lag_of_readers(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, history_min_entries=1000, history_hard_limit=4000) as worker:
        await fill(worker.namespace, 2500)
        await report_position(worker.namespace, "lake", f"700 {await now_of(worker.namespace)}")
        await report_position(worker.namespace, "other", f"2400 {await now_of(worker.namespace)}")
        await upkeep_of(worker).trim()
        state = await read_history_state(worker.namespace)

        def shown(name: str) -> float | None:
            return worker.metrics.registry.get_sample_value(f"routebook_history_{name}")

        assert shown("entries") == state.entries < 2500
        assert shown("used_ratio") == 2500 / 4000, "as it was before trimming"
        assert (shown("readers"), shown("reader_lag_changes")) == (2, 1800)


async def test_the_limit_in_bytes_is_kept_to_within_about_a_mebibyte(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, history_max_bytes=2_097_152) as worker:
        namespace = worker.namespace
        for n in range(60):
            table = topics(*(f"{n}-{m}-" + "x" * 80 for m in range(900)))
            await register(worker.registry, registration(f"127.0.2.{n}:1", broker=f"b{n}", topics=table))
        before = await read_history_state(namespace)
        assert before.kept_bytes > 4_000_000
        await upkeep_of(worker).trim()
        after = await read_history_state(namespace)
        assert 1_000_000 < after.kept_bytes <= 2_097_152 + 1_048_576 + 200_000
        held = sum(
            len(fields[1]) for _, fields in await namespace.client.call("XRANGE", namespace.keys.changes, "-", "+")
        )
        assert abs(held - after.kept_bytes) < 1_300_000
        assert len(after.marks) < len(before.marks)


async def test_an_unreadable_position_keeps_nothing_and_is_logged_once(
    store_url: str, namespace_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_worker(store_url, namespace_name, history_min_entries=1000) as worker:
        await fill(worker.namespace, 1500)
        await report_position(worker.namespace, "odd", "soon")
        upkeep = upkeep_of(worker)
        await upkeep.trim()
        await upkeep.trim()
        assert (await read_history_state(worker.namespace)).first > 300
        assert len([line for line in caplog.messages if "no position in the history, for the readers odd" in line]) == 1


async def test_the_status_shows_the_current_bound(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, history_min_entries=1000) as worker:
        await fill(worker.namespace, 1200)
        await report_position(worker.namespace, "lake", f"50 {await now_of(worker.namespace)}")
        status = await worker.registry.status()
        assert status.history_bound is not None
        assert (status.history_bound.reason, status.history_bound.below) == ("reader", 50)
        assert status.history_state is not None
        assert status.history_state.entries == 1200


# -- baselines


async def write_whole_baseline(namespace: Namespace, lease: str) -> list[Change]:
    before = (await read_history_state(namespace)).newest
    async for _ in write_baseline(namespace, lease, caller=CALLER, cause="operator"):
        pass
    return await history(namespace, after=before)


async def lease_of(namespace: Namespace) -> str:
    await open_namespace(namespace)
    _, lease = await acquire_lease(namespace, "worker", 60_000)
    return lease.whole


async def test_a_baseline_has_every_seat_and_every_topic(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        table = topics(*(f"t{n}" for n in range(2300)))
        await register(worker.registry, registration(topics=table))
        await register(worker.registry, registration("127.0.0.9:1", 1, topics=table))
        written = await write_whole_baseline(worker.namespace, await lease_of(worker.namespace))
        assert [written[0].kind, written[-1].kind] == ["baseline-begin", "baseline-end"]
        assert written[-1].fields["entries"] == len(written) - 2
        assert written[-1].fields["begin"] == written[0].version
        seats = [change.fields for change in written if change.kind == "baseline-seat"]
        assert {(seat["id"], seat["addr"]) for seat in seats} == {(0, "127.0.0.1:10911"), (1, "127.0.0.9:1")}
        named = [item["t"] for change in written for item in change.fields.get("queues", ())]
        assert set(named) == set(table)


async def test_a_baseline_changes_nothing_for_replicas_and_subscribers(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        result = await register(worker.registry, registration())
        digest, route = worker.replica.table.digest, worker.registry.find_route("orders")
        with worker.replica.subscriptions.add() as subscription:
            written = await write_whole_baseline(worker.namespace, await lease_of(worker.namespace))
            await worker.replica.wait_for(written[-1].version, 30_000)
            subscription.close()
            assert [event async for event in subscription] == []
        assert (worker.replica.table.digest, worker.registry.find_route("orders")) == (digest, route)
        again = await register(worker.registry, registration())
        assert (again.status, again.incarnation) == ("unchanged", result.incarnation)


async def test_a_fenced_leader_writes_no_baseline(namespace: Namespace) -> None:
    lease = await lease_of(namespace)
    begun = write_baseline(namespace, lease, caller=CALLER, cause="daily")
    await anext(begun)
    await namespace.client.call("SET", namespace.keys.table("leader"), "1:other:x")
    with pytest.raises(FencedError):
        await append_baseline(namespace, lease, "broker-a", "", caller=CALLER)
    with pytest.raises(FencedError):
        await anext(begun)
    assert await kinds(namespace) == ["baseline-begin"]


async def test_a_baseline_ends_with_the_connections_on_which_it_began(namespace: Namespace, store_url: str) -> None:
    """They may lead to another primary now, which lacks the first parts. A reader would take them for deleted."""
    await register_plain(namespace, A)
    lease = await lease_of(namespace)
    async with FaultProxy.before(store_url) as proxy, client_at(proxy.url, namespace.keys) as client:
        through_proxy = Namespace(client, namespace.keys, namespace.scripts)
        begun = write_baseline(through_proxy, lease, caller=CALLER, cause="daily")
        await anext(begun)
        epoch = client.epoch
        proxy.cut()
        while client.epoch == epoch:
            with suppress(StoreUnavailableError):
                await client.call("PING")
        with pytest.raises(EpochEndedError):
            await anext(begun)
    assert "baseline-end" not in await kinds(namespace)
    assert (await write_whole_baseline(namespace, lease))[-1].kind == "baseline-end"


async def test_a_requested_baseline_is_written_once(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, scan_not_active_broker_interval_ms=100) as worker:
        await register(worker.registry, registration())
        since = await worker.registry.request_baseline()
        assert await request_baseline(worker.namespace, "trimmed") == since
        worker.lead()
        async with asyncio.timeout(30):
            while (await read_baseline_state(worker.namespace)).requested:
                await asyncio.sleep(0.02)
        found = [
            change.fields for change in await changes_between(worker.namespace, 0, 100) if change.kind[:8] == "baseline"
        ]
        assert [fields["kind"] for fields in found] == [
            "baseline-begin",
            "baseline-seat",
            "baseline-queues",
            "baseline-end",
        ]
        assert found[0]["cause"] == "operator"


async def test_a_baseline_is_written_each_day(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_upkeep, "CHECK_PERIOD_S", 0)
    async with running_worker(store_url, namespace_name, recovery_window_ms=0) as worker:
        await register(worker.registry, registration())
        upkeep, lease = upkeep_of(worker), await lease_of(worker.namespace)
        await upkeep.work(lease)
        await upkeep.work(lease)
        assert [change.fields["cause"] for change in await baselines_begun(worker.namespace)] == ["new-history"]
        await worker.client.call("HINCRBY", worker.namespace.keys.meta, "baseline_ms", -DAY_MS)
        await upkeep.work(lease)
        await upkeep.work(lease)
        assert [change.fields["cause"] for change in await baselines_begun(worker.namespace)] == [
            "new-history",
            "daily",
        ]


async def test_a_reader_that_misses_entries_soon_after_a_baseline_gets_the_next_one_later(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_upkeep, "CHECK_PERIOD_S", 0)
    settings = {"history_min_entries": 1000, "history_hard_limit": 1500, "recovery_window_ms": 0}
    async with running_worker(store_url, namespace_name, **settings) as worker:
        await register(worker.registry, registration())
        upkeep, lease = upkeep_of(worker), await lease_of(worker.namespace)
        await upkeep.work(lease)
        await report_position(worker.namespace, "lake", f"4 {await now_of(worker.namespace)}")
        await fill(worker.namespace, 2500)
        await upkeep.trim()
        await upkeep.work(lease)
        assert [change.fields["cause"] for change in await baselines_begun(worker.namespace)] == []
        # The reader goes on, so nothing but the request shows that it has missed entries.
        await report_position(worker.namespace, "lake", f"2500 {await now_of(worker.namespace)}")
        await worker.client.call("HINCRBY", worker.namespace.keys.meta, "baseline_ms", -history_upkeep.AFTER_A_LOSS_MS)
        await upkeep.work(lease)
        assert [change.fields["cause"] for change in await baselines_begun(worker.namespace)] == ["trimmed"]


async def test_an_operator_does_not_wait_for_a_baseline_after_a_loss(namespace: Namespace) -> None:
    await request_baseline(namespace, "trimmed")
    await request_baseline(namespace, "operator")
    assert (await read_baseline_state(namespace)).requested == "operator"
    await request_baseline(namespace, "trimmed")
    assert (await read_baseline_state(namespace)).requested == "operator"


async def test_a_new_history_has_no_baseline_before_the_recovery_window_ends(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_upkeep, "CHECK_PERIOD_S", 0)
    async with running_worker(store_url, namespace_name, recovery_window_ms=60_000) as worker:
        await register(worker.registry, registration())
        upkeep, lease = upkeep_of(worker), await lease_of(worker.namespace)
        await upkeep.work(lease)
        assert await baselines_begun(worker.namespace) == []


async def test_a_leader_that_has_not_noticed_a_new_history_writes_no_baseline(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_upkeep, "CHECK_PERIOD_S", 0)
    async with running_worker(store_url, namespace_name, recovery_window_ms=0) as worker:
        await register(worker.registry, registration())
        upkeep, lease = upkeep_of(worker), await lease_of(worker.namespace)
        monkeypatch.setattr(type(worker.replica), "history", "of-before-the-loss")
        await upkeep.work(lease)
        assert await baselines_begun(worker.namespace) == []


async def baselines_begun(namespace: Namespace) -> list[Change]:
    return [change for change in await history(namespace) if change.kind == "baseline-begin"]


async def test_a_new_leader_starts_an_unfinished_baseline_again(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_upkeep, "CHECK_PERIOD_S", 0)
    monkeypatch.setattr(history_upkeep, "STEP_S", 0)
    async with running_worker(store_url, namespace_name) as worker:
        namespace = worker.namespace
        await register(worker.registry, registration())
        await worker.registry.request_baseline()
        first, second = upkeep_of(worker), upkeep_of(worker)
        lease = await lease_of(namespace)
        await first.work(lease)
        await first.work(lease)
        assert "baseline-seat" in await kinds(namespace)
        await namespace.client.call("DEL", namespace.keys.table("leader"))
        newer = await lease_of(namespace)
        with pytest.raises(FencedError):
            await first.work(lease)
        assert not first.is_busy
        while (await read_baseline_state(namespace)).requested:
            await second.work(newer)
        written = [kind for kind in await kinds(namespace) if kind.startswith("baseline")]
        assert written.count("baseline-begin") == 2
        assert written.count("baseline-end") == 1
        assert written[-3:] == ["baseline-seat", "baseline-queues", "baseline-end"]
