"""The client with a faulty network or store: calls end in time, and no reply reaches the wrong caller."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest

from routebook.errors import EpochEndedError, StoreUnavailableError
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import lasting_free_port
from tests.support.waiting import until

TIMEOUT_MS = 300
SLACK_S = 3.0
"""Generous, for a busy machine. A call without a deadline would never return."""
"""What a busy machine may add to a deadline."""


@pytest.fixture
async def proxy(store_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.before(store_url) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[StoreClient]:
    """Connected through the proxy, with short timeouts."""
    client = StoreClient(StoreUrl.parse(proxy.url), slot_key="rb:{t}:meta", timeout_ms=TIMEOUT_MS)
    await client.open()
    yield client
    await client.close()


async def works(client: StoreClient) -> bool:
    try:
        return bool(await client.call("PING") == b"PONG")
    except StoreUnavailableError:
        return False


async def seconds_until_refused(client: StoreClient, *words: str, timeout_ms: int | None = None) -> float:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        await client.call(*words, timeout_ms=timeout_ms)
    return time.monotonic() - begun


async def test_a_call_to_a_stalled_store_ends_at_its_deadline(proxy: FaultProxy, client: StoreClient) -> None:
    proxy.stall()
    for _ in range(3):
        # The first call has a connection, later ones wait for one: the deadline covers both.
        assert await seconds_until_refused(client, "PING") < TIMEOUT_MS / 1000 + SLACK_S
    assert not client.is_connected
    assert await seconds_until_refused(client, "PING", timeout_ms=50) < 0.05 + SLACK_S
    proxy.heal()
    await until(lambda: works(client))


async def test_a_thousand_callers_of_a_stalled_store_all_end_in_time(proxy: FaultProxy, client: StoreClient) -> None:
    proxy.stall()
    took = await asyncio.gather(*[seconds_until_refused(client, "PING") for _ in range(1000)])
    assert max(took) < TIMEOUT_MS / 1000 + SLACK_S
    accepted = proxy.accepted
    proxy.heal()
    await until(lambda: works(client))
    assert proxy.accepted - accepted <= 3


async def test_a_stopped_server_is_dropped_and_used_again_after_it_continues() -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        client = StoreClient(StoreUrl.parse(store.url), slot_key="k", timeout_ms=TIMEOUT_MS)
        await client.open()
        os.kill(store.process_id, signal.SIGSTOP)
        assert await seconds_until_refused(client, "SET", "k", "v") < TIMEOUT_MS / 1000 + SLACK_S
        os.kill(store.process_id, signal.SIGCONT)
        await until(lambda: works(client))
        await client.close()


async def test_a_call_whose_answer_was_lost_is_not_repeated(
    proxy: FaultProxy, client: StoreClient, namespace_name: str
) -> None:
    key = f"rb:{{{namespace_name}}}:count"
    proxy.hold_answers()
    with pytest.raises(StoreUnavailableError):
        await client.call("INCR", key)
    proxy.cut()
    proxy.heal()
    await until(lambda: works(client))
    assert await client.call("GET", key) == b"1"


async def test_a_cut_connection_fails_only_the_calls_on_it(proxy: FaultProxy, client: StoreClient) -> None:
    proxy.hold_answers()
    calls = [asyncio.create_task(client.call("PING")) for _ in range(10)]
    await asyncio.sleep(0.02)
    epoch = client.epoch
    proxy.cut()
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            await call
    proxy.heal()
    assert await client.call("PING") == b"PONG"
    assert client.epoch == epoch + 1


async def test_a_call_for_one_epoch_is_not_sent_on_later_connections(proxy: FaultProxy, client: StoreClient) -> None:
    """It may depend on what the store had: the connections may lead to another primary by now."""
    epoch = client.epoch
    await client.call("SET", "rb:{t}:epoch", "first", epoch=epoch)
    proxy.cut()
    await until(lambda: not client.is_connected)
    with pytest.raises(EpochEndedError):
        await client.call("SET", "rb:{t}:epoch", "second", epoch=epoch)
    assert await client.call("GET", "rb:{t}:epoch") == b"first"
    assert client.epoch > epoch
    await client.call("DEL", "rb:{t}:epoch", epoch=client.epoch)


async def test_a_refused_connection_fails_at_once_and_is_retried_with_pauses(
    proxy: FaultProxy, client: StoreClient
) -> None:
    await proxy.refuse()
    await until(lambda: not client.is_connected)
    begun = time.monotonic()
    took = [await seconds_until_refused(client, "PING") for _ in range(4)]
    assert max(took) < TIMEOUT_MS / 1000 + SLACK_S
    # With 50 ms between attempts, there cannot have been many.
    assert time.monotonic() - begun > 0.1
    await proxy.accept()
    await until(lambda: works(client))


async def test_a_slow_store_delays_calls_without_queueing_them(proxy: FaultProxy, client: StoreClient) -> None:
    """With one call at a time per connection, 8 calls would be served per round trip, which would take 19 s."""
    proxy.delay(0.15)
    begun = time.monotonic()
    answers = await asyncio.gather(*[client.call("ECHO", str(n), timeout_ms=20_000) for n in range(500)])
    assert answers == [str(n).encode() for n in range(500)]
    assert time.monotonic() - begun < 8


async def test_calls_do_not_wait_behind_a_long_pipeline(proxy: FaultProxy, client: StoreClient) -> None:
    loading = asyncio.create_task(client.pipeline([("ECHO", "x" * 1000)] * 20_000, timeout_ms=20_000))
    await asyncio.sleep(0.01)
    begun = time.monotonic()
    assert await client.call("PING", timeout_ms=20_000) == b"PONG"
    quick = time.monotonic() - begun
    assert len(await loading) == 20_000
    assert quick < time.monotonic() - begun


async def test_a_call_that_times_out_behind_a_longer_one_does_not_end_the_connection() -> None:
    with EmbeddedStore(None, port=lasting_free_port()) as store:
        patient = StoreClient(StoreUrl.parse(store.url), slot_key="k", timeout_ms=5000, connections=1)
        await patient.open()
        long_one = asyncio.create_task(patient.call("BLPOP", "nothing", "0.4", timeout_ms=5000))
        await asyncio.sleep(0.01)
        assert await seconds_until_refused(patient, "PING", timeout_ms=50) < 0.05 + SLACK_S
        assert await long_one is None
        assert await patient.call("ECHO", "next") == b"next"
        assert patient.epoch == 1
        await patient.close()


async def test_a_cancelled_call_leaves_no_reply_for_another_call(proxy: FaultProxy, client: StoreClient) -> None:
    """Callers are cancelled at any moment, and connections cut: each reply still matches its request."""
    chance = random.Random(20)
    wrong: list[tuple[str, object]] = []
    answered = 0

    async def caller(name: int) -> None:
        nonlocal answered
        for turn in range(100):
            word = f"{name}-{turn}"
            try:
                if turn % 5:
                    replies = [await client.call("ECHO", word)]
                else:
                    replies = await client.pipeline([("ECHO", word)] * chance.choice([2, 20]))
            except StoreUnavailableError:
                continue
            wrong.extend((word, reply) for reply in replies if reply != word.encode())
            answered += 1

    tasks = [asyncio.create_task(caller(name)) for name in range(40)]
    for _ in range(300):
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < 0.02:
            proxy.cut()
            continue
        victim = chance.randrange(len(tasks))
        tasks[victim].cancel()
        await asyncio.gather(tasks[victim], return_exceptions=True)
        tasks[victim] = asyncio.create_task(caller(victim))
    await asyncio.gather(*tasks)
    assert wrong == []
    assert answered > 1000
    await until(lambda: works(client))


async def test_closing_does_not_wait_for_a_store_that_hangs(proxy: FaultProxy, client: StoreClient) -> None:
    proxy.stall()
    calls = [asyncio.create_task(client.call("PING")) for _ in range(5)]
    await asyncio.sleep(0.01)
    begun = time.monotonic()
    await client.close()
    assert time.monotonic() - begun < SLACK_S
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            await call


async def test_closing_while_connecting_fails_waiting_calls(proxy: FaultProxy) -> None:
    proxy.stall()
    client = StoreClient(StoreUrl.parse(proxy.url), slot_key="k", timeout_ms=5000)
    calls = [asyncio.create_task(client.call("PING")) for _ in range(5)]
    await until(lambda: proxy.accepted)
    await client.close()
    for call in calls:
        with pytest.raises(StoreUnavailableError, match="closed"):
            await call
