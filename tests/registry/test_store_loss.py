"""The store is unreachable, comes back with its data, or comes back empty: what readers see, and what is restored."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from routebook.errors import NotFoundError, NotReadyError, RoutebookError, StoreUnavailableError
from routebook.model.broker import QueueData
from routebook.store.embedded import EmbeddedStore
from tests.reference.build import A, registration, topics, version
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.ports import lasting_free_port
from tests.support.registering import register
from tests.support.waiting import until

B = "127.0.0.2:10911"


def kill(store: EmbeddedStore) -> None:
    os.kill(store.process_id, signal.SIGKILL)
    store.stop()


async def fill(worker: InProcessWorker) -> None:
    await register(worker.registry, registration(A))
    await register(worker.registry, registration(B, broker="broker-b", topics=topics("orders", "billing")))
    await worker.registry.register_topic("by-request", {"broker-a": QueueData(4, 4)}, CALLER)
    await worker.registry.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:8", CALLER)
    await worker.registry.change_setting("hold_percent", "77", CALLER)


def assert_finds_routes(worker: InProcessWorker, *names: str) -> None:
    for name in names:
        worker.registry.find_route(name)


async def test_without_a_store_lookups_continue_and_writes_are_refused_quickly() -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with running_worker(store.url, "t") as worker:
            await fill(worker)
            kill(store)
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                await worker.registry.put_kv("ns", "key", "value", CALLER)
            assert time.monotonic() - began < 4
            await until(lambda: worker.registry.stale_seconds > 0)
            for _ in range(100):
                assert_finds_routes(worker, "orders", "billing", "by-request")
            with pytest.raises(NotReadyError):
                worker.registry.find_route("unknown-topic")


async def test_a_store_that_comes_back_with_its_data_is_followed_again(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "data", port=lasting_free_port()) as store:
        async with running_worker(store.url, "t") as worker:
            await fill(worker)
            before = (worker.replica.table.digest, worker.replica.version, worker.replica.history)
            store.stop()
            await until(lambda: worker.registry.stale_seconds > 0)
            store.start()
            await until(lambda: worker.replica.current)
            assert (
                worker.replica.table.digest,
                worker.replica.version,
                worker.replica.history,
            ) == before
            with pytest.raises(NotFoundError):
                worker.registry.find_route("unknown-topic")
            await register(worker.registry, registration(data_version=version(9), topics=topics("new", "x")))
            assert_finds_routes(worker, "new")


async def test_an_empty_store_never_makes_a_known_topic_unknown(tmp_path: Path) -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with running_worker(store.url, "t", recovery_window_ms=20_000) as worker:
            await fill(worker)
            history = worker.replica.history
            worker.lead()
            worker.spawn(worker.restoring.run())
            misses: list[RoutebookError] = []

            async def look_up() -> None:
                while True:
                    try:
                        assert_finds_routes(worker, "orders", "billing", "by-request")
                    except RoutebookError as error:
                        misses.append(error)
                    await asyncio.sleep(0)

            lookups = worker.spawn(look_up())
            kill(store)
            await until(lambda: worker.registry.stale_seconds > 0)
            store.start()
            await until(lambda: worker.replica.history not in ("", history))
            # Key-values and settings are back before any broker has registered.
            await until(lambda: worker.replica.table.kv.get("ORDER_TOPIC_CONFIG") == {"orders": "broker-a:8"})
            await until(lambda: worker.replica.table.settings == {"hold_percent": "77"})
            assert worker.replica.is_recovering
            # Brokers return one by one; the topic that was created by request follows its broker.
            await register(worker.registry, registration(A))
            await until(lambda: "by-request" in worker.replica.table.queues_of("broker-a"))
            assert_finds_routes(worker, "billing")
            await register(worker.registry, registration(B, broker="broker-b", topics=topics("orders", "billing")))
            await until(lambda: not worker.replica.is_recovering, timeout_s=15)
            assert_finds_routes(worker, "orders", "billing", "by-request")
            assert not lookups.done()
            assert misses == []


async def test_a_deletion_during_a_recovery_applies_on_every_worker() -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with (
            running_worker(store.url, "t") as one,
            running_worker(store.url, "t") as other,
        ):
            await fill(one)
            await other.registry.wait_for_version(one.registry.replica.version)
            former_history = one.registry.replica.history
            await one.client.call("FLUSHALL")
            await until(lambda: former_history not in (one.registry.replica.history, other.registry.replica.history))
            assert one.registry.replica.history == other.registry.replica.history
            assert one.replica.is_recovering
            assert other.replica.is_recovering
            await one.registry.delete_topic("billing", None, CALLER)
            await one.registry.unregister("east", "broker-a", 0, CALLER)
            await one.registry.delete_kv("ORDER_TOPIC_CONFIG", "orders", CALLER)
            await other.registry.wait_for_version(one.registry.replica.version)
            for worker in (one, other):
                with pytest.raises(NotFoundError):
                    worker.registry.find_route("billing")
                with pytest.raises(NotFoundError):
                    worker.registry.find_route("payments")
                with pytest.raises(NotFoundError):
                    worker.registry.kv_value("ORDER_TOPIC_CONFIG", "orders")
                assert_finds_routes(worker, "orders")


async def test_topics_that_do_not_return_are_dropped_when_the_recovery_window_ends() -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with running_worker(store.url, "t", recovery_window_ms=1000) as worker:
            await fill(worker)
            await worker.client.call("FLUSHALL")
            await until(lambda: worker.replica.is_recovering)
            await until(lambda: not worker.replica.is_recovering and worker.replica.current)
            with pytest.raises(NotFoundError):
                worker.registry.find_route("billing")


async def test_a_worker_that_warms_up_does_not_call_a_topic_unknown(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, warm_up_ms=600) as worker:
        with pytest.raises(NotReadyError, match="warming up"):
            worker.registry.find_route("orders")
        await asyncio.sleep(0.7)
        with pytest.raises(NotFoundError):
            worker.registry.find_route("orders")


async def test_a_write_right_after_a_loss_is_visible_when_it_is_answered() -> None:
    """The worker has not noticed the new store yet; the low version in the answer shows it."""
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        async with running_worker(store.url, "t") as worker:
            await fill(worker)
            history = worker.replica.history
            await worker.client.call("FLUSHALL")
            await worker.registry.put_kv("ns", "key", "value", CALLER)
            assert worker.replica.history != history
            assert worker.registry.kv_value("ns", "key") == "value"
            await worker.client.call("FLUSHALL")
            result = await register(worker.registry, registration(A))
            assert result.status == "changed"
            assert worker.replica.table.groups["broker-a"].addresses == {0: A}
