"""The client with a healthy store: replies, many callers on few connections, errors."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.errors import StoreError, StoreUnavailableError
from routebook.store.connection.client import NoScriptError, StoreClient, StoreRefusedError, StoreReplyError
from routebook.store.connection.url import StoreUrl
from routebook.store.embedded import EmbeddedStore
from tests.support.waiting import until


def new_client(url: str, *, timeout_ms: int = 5000, connections: int = 8) -> StoreClient:
    return StoreClient(StoreUrl.parse(url), slot_key="rb:{t}:meta", timeout_ms=timeout_ms, connections=connections)


@pytest.fixture
def key(namespace_name: str) -> str:
    return f"rb:{{{namespace_name}}}:test"


@pytest.fixture
def own_store() -> Iterator[EmbeddedStore]:
    """A store that a test may kill or reconfigure."""
    with EmbeddedStore(None, port=0) as store:
        yield store


async def test_replies_are_returned_unchanged(client: StoreClient, key: str) -> None:
    assert await client.call("SET", key, "wert é") == b"OK"
    assert await client.call("GET", key) == "wert é".encode()
    assert await client.call("GET", key + "-absent") is None
    assert await client.call("INCRBY", key + "-n", 41) == 41
    assert await client.call("EVAL", "return {1, 'a', {2}, false}", 0) == [1, b"a", [2], None]


async def test_bytes_and_numbers_are_sent_unchanged(client: StoreClient, key: str) -> None:
    binary = bytes(range(256)) * 1000
    await client.call("SET", key, binary)
    assert await client.call("GET", key) == binary
    assert await client.call("INCRBYFLOAT", key + "-f", 1.5) == b"1.5"


async def test_a_pipeline_answers_in_order(client: StoreClient, key: str) -> None:
    commands = [("RPUSH", key, number) for number in range(5000)]
    assert await client.pipeline(commands) == list(range(1, 5001))
    assert await client.pipeline([]) == []


async def test_a_pipeline_with_a_refused_command_raises_and_the_next_call_works(client: StoreClient, key: str) -> None:
    commands = [("SET", key, "x"), ("INCR", key), ("SET", key, "y")]
    with pytest.raises(StoreReplyError, match="not an integer"):
        await client.pipeline(commands * 10)
    assert await client.call("GET", key) == b"y"


async def test_concurrent_calls_each_get_their_own_reply(client: StoreClient) -> None:
    async def echo(number: int) -> bool:
        return bool(await client.call("ECHO", str(number)) == str(number).encode())

    assert all(await asyncio.gather(*[echo(number) for number in range(2000)]))


async def test_connections_stay_within_the_limit(own_store: EmbeddedStore) -> None:
    client = new_client(own_store.url, connections=3)
    await client.open()
    await asyncio.gather(*[client.call("PING") for _ in range(500)])
    await asyncio.gather(*[client.pipeline([("PING",)] * 50) for _ in range(20)])
    clients = (await client.call("CLIENT", "LIST")).decode()
    assert 1 <= clients.count("name=routebook") <= 3
    await client.close()


async def test_a_blocking_read_delays_no_other_call(client: StoreClient, key: str) -> None:
    reading = asyncio.create_task(client.call_blocking("XREAD", "BLOCK", 5000, "STREAMS", key, "$", block_ms=5000))
    await until(lambda: client.call("PING"))
    while not reading.done():
        await client.call("XADD", key, "*", "name", "value")
        await asyncio.sleep(0.01)
    [[stream, [[_, fields]]]] = await reading
    assert (stream, fields) == (key.encode(), [b"name", b"value"])


async def test_a_blocking_read_without_data_returns_none(client: StoreClient, key: str) -> None:
    assert await client.call_blocking("XREAD", "BLOCK", 20, "STREAMS", key, "$", block_ms=20) is None


async def test_a_cancelled_blocking_read_disturbs_no_other_call(client: StoreClient, key: str) -> None:
    # A read that removes nothing, like the feed's: the server may notice late that the reader has gone.
    read = ("XREAD", "BLOCK", 5000, "STREAMS", key, "0")
    epoch = client.epoch
    for _ in range(3):
        reading = asyncio.create_task(client.call_blocking(*read, block_ms=5000))
        await asyncio.sleep(0.02)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    await client.call("XADD", key, "1-1", "for", "the next")
    assert b"the next" in repr(await client.call_blocking(*read, block_ms=5000)).encode()
    assert client.epoch == epoch


async def test_an_unknown_script_raises_its_own_error(client: StoreClient) -> None:
    with pytest.raises(NoScriptError):
        await client.call("EVALSHA", "0" * 40, 0)
    with pytest.raises(NoScriptError):
        await client.pipeline([("EVALSHA", "0" * 40, 0)])


async def test_an_error_of_a_script_keeps_its_code(client: StoreClient) -> None:
    with pytest.raises(StoreReplyError) as refusal:
        await client.call("EVAL", "return redis.error_reply('FENCED another token')", 0)
    assert (refusal.value.code, refusal.value.text) == ("FENCED", "another token")


async def test_a_wrong_command_does_not_cost_the_connection(client: StoreClient) -> None:
    epoch = client.epoch
    with pytest.raises(StoreReplyError) as refusal:
        await client.call("NONSENSE")
    assert refusal.value.code == "ERR"
    assert client.is_connected
    assert client.epoch == epoch


async def test_an_error_about_memory_names_the_setting_to_raise(own_store: EmbeddedStore) -> None:
    client = new_client(own_store.url)
    await client.open()
    await client.call("CONFIG", "SET", "maxmemory", "1")
    write = "return redis.call('set', KEYS[1], ARGV[1])"
    for words in [("SET", "k", "v"), ("EVAL", write, 1, "k", "v")]:
        with pytest.raises(StoreRefusedError) as refusal:
            await client.call(*words)
        assert refusal.value.code == "OOM"
        assert "maxmemory" in refusal.value.advice
    assert client.is_connected
    await client.close()


async def test_the_age_of_the_last_answer_grows_until_the_next_one(client: StoreClient) -> None:
    await client.call("PING")
    await until(lambda: client.answer_age_ms() >= 200)
    await client.call("PING")
    assert client.answer_age_ms() < 200
    assert client.is_connected


async def test_an_unreachable_store_is_reported_with_its_address_without_the_password(tmp_path: Path) -> None:
    client = new_client(f"unix://:s3cret@{tmp_path}/absent.sock")
    with pytest.raises(StoreUnavailableError) as failure:
        await client.open()
    assert f"{tmp_path}/absent.sock" in failure.value.message
    assert "s3cret" not in str(failure.value)
    assert not client.is_connected
    assert client.epoch == 0
    with pytest.raises(StoreUnavailableError):
        await client.call("PING")
    await client.close()


async def test_close_fails_waiting_calls_and_leaves_no_task(store_url: str, namespace_name: str) -> None:
    before = asyncio.all_tasks()
    client = new_client(store_url)
    await client.open()
    waiting = [
        asyncio.create_task(client.call("BLPOP", f"rb:{{{namespace_name}}}:never", 0)),
        asyncio.create_task(client.call_blocking("BLPOP", f"rb:{{{namespace_name}}}:never", 0, block_ms=60_000)),
    ]
    await asyncio.sleep(0.05)
    await client.close()
    for task in waiting:
        with pytest.raises(StoreUnavailableError):
            await task
    assert asyncio.all_tasks() <= before
    with pytest.raises(StoreUnavailableError, match="closed"):
        await client.call("PING")
    del client
    gc.collect()


async def test_close_before_open_and_twice_is_harmless(store_url: str) -> None:
    client = new_client(store_url)
    await client.close()
    await client.close()


async def test_a_restarted_store_gets_a_new_epoch(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data", port=0)
    with store:
        client = new_client(store.url)
        await client.open()
        await client.call("SET", "k", "kept")
        epoch = client.epoch
        store.stop()
        await until(lambda: not client.is_connected)
        with pytest.raises(StoreUnavailableError):
            await client.call("GET", "k")
        store.start()
        assert await client.call("GET", "k") == b"kept"
        assert client.epoch == epoch + 1
        await client.close()


async def test_an_idle_connection_that_the_store_closes_is_no_failure(own_store: EmbeddedStore) -> None:
    client = new_client(own_store.url)
    await client.open()
    await client.pipeline([("PING",)] * 100)
    listed = (await client.call("CLIENT", "LIST")).decode().splitlines()
    own = await client.call("CLIENT", "ID")
    for line in listed:
        if (number := int(line.split()[0].removeprefix("id="))) != own:
            await client.call("CLIENT", "KILL", "ID", number)
    assert len(await client.pipeline([("PING",)] * 100)) == 100
    assert client.epoch == 1
    await client.close()


async def test_a_replica_is_refused_as_store(own_store: EmbeddedStore) -> None:
    client = new_client(own_store.url)
    await client.open()
    await client.call("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailableError, match=r"slave|replica"):
        await client.call("SET", "k", "v")
    with pytest.raises(StoreUnavailableError, match="not the primary"):
        await client.call("GET", "k")
    await client.close()


async def test_the_chosen_database_is_used(own_store: EmbeddedStore) -> None:
    client, other = new_client(own_store.url + "/3"), new_client(own_store.url)
    for each in (client, other):
        await each.open()
    await client.call("SET", "k", "in 3")
    assert await other.call("GET", "k") is None
    for each in (client, other):
        await each.close()
    with pytest.raises(StoreError, match="DB index"):
        await new_client(own_store.url + "/99").open()
