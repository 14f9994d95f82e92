"""With a Cluster: the slot of the namespace decides which node is used, and MOVED is followed within the call."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from routebook.errors import StoreUnavailableError
from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from tests.support.topologies import ClusterTrio, ask, kill
from tests.support.waiting import until


@pytest.fixture(scope="module")
def trio() -> Iterator[ClusterTrio]:
    with ClusterTrio() as trio:
        yield trio


def new_client(url: str, namespace: str) -> StoreClient:
    return StoreClient(StoreUrl.parse(url), slot_key=f"rb:{{{namespace}}}:meta", timeout_ms=1000)


async def test_every_namespace_is_found_from_any_node(trio: ClusterTrio) -> None:
    served_by = set()
    for number in range(12):
        key = f"rb:{{n{number}}}:meta"
        client = new_client(f"cluster://127.0.0.1:{trio.ports[number % 3]}", f"n{number}")
        await client.open()
        await client.call("EVAL", "return redis.call('set', KEYS[1], ARGV[1])", 1, key, number)
        owner = trio.owner_of(key_slot(key.encode()))
        assert ask(owner, "GET", key) == str(number)
        served_by.add(owner)
        assert client.epoch == 1
        await client.close()
    assert served_by == set(trio.ports)


async def test_a_call_to_a_moved_slot_is_redirected(trio: ClusterTrio, namespace_name: str) -> None:
    client = new_client(trio.url, namespace_name)
    await client.open()
    key = f"rb:{{{namespace_name}}}:k"
    await client.call("SET", key, "kept")
    for epoch in (2, 3):
        await asyncio.to_thread(trio.move_slot, key_slot(key.encode()))
        assert await client.call("GET", key) == b"kept"
        assert client.epoch == epoch
    await client.close()


async def test_a_pipeline_to_a_moved_slot_fails_once(trio: ClusterTrio, namespace_name: str) -> None:
    client = new_client(trio.url, namespace_name)
    await client.open()
    key = f"rb:{{{namespace_name}}}:k"
    await asyncio.to_thread(trio.move_slot, key_slot(key.encode()))
    commands = [("RPUSH", key, number) for number in range(20)]
    with pytest.raises(StoreUnavailableError, match="MOVED"):
        await client.pipeline(commands)
    assert await client.pipeline(commands) == list(range(1, 21))
    await client.close()


async def test_a_dead_node_of_other_slots_does_no_harm(namespace_name: str) -> None:
    with ClusterTrio() as trio:
        owner = trio.owner_of(key_slot(f"{{{namespace_name}}}".encode()))
        kill(next(node for node in trio.nodes if node.port != owner))
        client = new_client(trio.url, namespace_name)
        await client.open()
        key = f"rb:{{{namespace_name}}}:k"
        await until(lambda: client.call("SET", key, "v"))
        kill(next(node for node in trio.nodes if node.port == owner))
        with pytest.raises(StoreUnavailableError):
            await client.call("GET", key)
        await client.close()
