"""With Sentinel: the primary is found, a failover is followed, and one sentinel that disagrees is outvoted."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from routebook.errors import StoreUnavailableError
from routebook.store.connection.client import PRIMARY_CHECK_SECONDS, StoreClient
from routebook.store.connection.url import StoreUrl
from tests.support.fault_proxy import FaultProxy
from tests.support.topologies import SentinelTrio, ask, have_replicated, kill
from tests.support.waiting import until


@pytest.fixture
def own_trio() -> Iterator[SentinelTrio]:
    """Servers that a test may kill."""
    with SentinelTrio() as trio:
        yield trio


@pytest.fixture(scope="module")
def trio() -> Iterator[SentinelTrio]:
    """Shared servers, which tests must not change."""
    with SentinelTrio() as trio:
        yield trio


def new_client(url: str, timeout_ms: int = 1000) -> StoreClient:
    return StoreClient(StoreUrl.parse(url), slot_key="rb:{t}:meta", timeout_ms=timeout_ms)


async def wrote(client: StoreClient, value: str) -> bool:
    try:
        return bool(await client.call("SET", "k", value) == b"OK")
    except StoreUnavailableError:
        return False


async def test_writes_work_again_after_the_primary_is_killed(own_trio: SentinelTrio) -> None:
    client = new_client(own_trio.url)
    await client.open()
    await client.call("SET", "k", "before")
    await until(lambda: asyncio.to_thread(have_replicated, own_trio.primary.port or 0, 1))
    kill(own_trio.primary)
    await until(lambda: wrote(client, "after"))
    assert own_trio.replica.port
    assert ask(own_trio.replica.port, "GET", "k") == "after"
    assert client.epoch == 2
    await client.close()


async def test_a_call_to_a_demoted_primary_is_redirected(own_trio: SentinelTrio) -> None:
    client = new_client(own_trio.url)
    await client.open()
    primary, replica = own_trio.primary.port or 0, own_trio.replica.port or 0
    ask(own_trio.sentinel_ports[0], "SENTINEL", "FAILOVER", "names")
    await until(lambda: all(own_trio.names_primary(port) == replica for port in own_trio.sentinel_ports))
    # The sentinels would do this too, but wait eight seconds before.
    ask(primary, "REPLICAOF", "127.0.0.1", replica)
    assert await client.call("SET", "k", "at the new one") == b"OK"
    assert ask(replica, "GET", "k") == "at the new one"
    await client.close()


async def test_a_dead_sentinel_costs_nothing(trio: SentinelTrio) -> None:
    unused_address = "127.0.0.1:1"
    url = f"sentinel://{unused_address},127.0.0.1:{trio.sentinel_ports[0]},127.0.0.1:{trio.sentinel_ports[1]}/names"
    client = new_client(url, timeout_ms=20_000)
    begun = time.monotonic()
    await client.open()
    assert time.monotonic() - begun < 10
    await client.close()


async def test_a_sentinel_that_hangs_does_not_delay_the_search(trio: SentinelTrio) -> None:
    async with FaultProxy("127.0.0.1", trio.sentinel_ports[0]) as proxy:
        proxy.stall()
        others = ",".join(f"127.0.0.1:{port}" for port in trio.sentinel_ports[1:])
        client = new_client(f"sentinel://127.0.0.1:{proxy.port},{others}/names", timeout_ms=20_000)
        begun = time.monotonic()
        await client.open()
        assert time.monotonic() - begun < 10
        await client.close()


async def test_a_lone_sentinel_that_names_an_old_primary_is_outvoted(own_trio: SentinelTrio) -> None:
    stranger = own_trio.sentinel_ports[0]
    ask(stranger, "SENTINEL", "REMOVE", "names")
    ask(stranger, "SENTINEL", "MONITOR", "names", "127.0.0.1", own_trio.replica.port or 0, 2)
    client = new_client(own_trio.url)
    await client.open()
    await client.call("SET", "k", "v")
    assert ask(own_trio.primary.port or 0, "GET", "k") == "v"
    await client.close()


async def test_an_unknown_master_is_reported_by_name(trio: SentinelTrio) -> None:
    client = new_client(trio.url.removesuffix("names") + "other")
    with pytest.raises(StoreUnavailableError, match="no master 'other'"):
        await client.open()
    await client.close()


async def test_a_promoted_primary_is_used_while_the_old_one_refuses_writes(own_trio: SentinelTrio) -> None:
    """A partition separates the primary from its replica and the sentinels, but not from the workers. The old primary
    answers reads, refuses writes with NOREPLICAS, and does not learn that it was replaced.
    """
    client = new_client(own_trio.url)
    await client.open()
    await client.call("SET", "k", "before")
    primary, replica = own_trio.primary.port or 0, own_trio.replica.port or 0
    ask(primary, "CONFIG", "SET", "min-replicas-to-write", 1)
    ask(primary, "CONFIG", "SET", "min-replicas-max-lag", 1)
    await until(lambda: ask(primary, "INFO", "replication")["min_slaves_good_slaves"] == 1)
    own_trio.promote_without_the_primary()
    await until(lambda: all(own_trio.names_primary(port) == replica for port in own_trio.sentinel_ports))

    async def is_refused() -> bool:
        return not await wrote(client, "at the old one")

    await until(is_refused)
    assert await client.call("GET", "k")  # the old primary is connected and answers
    await until(lambda: wrote(client, "at the promoted one"), timeout_s=10)
    assert ask(replica, "GET", "k") == "at the promoted one"
    assert ask(primary, "ROLE")[0] == "master"
    await client.close()


async def test_sentinel_is_asked_periodically_without_a_refused_write(own_trio: SentinelTrio) -> None:
    client = new_client(own_trio.url)
    await client.open()
    await client.call("SET", "k", "before")
    own_trio.promote_without_the_primary()
    await until(lambda: not client.is_connected, timeout_s=30)
    assert await client.call("SET", "k", "after") == b"OK"
    assert client.epoch == 2
    assert ask(own_trio.replica.port or 0, "GET", "k") == "after"
    await client.close()


async def test_a_minority_of_sentinels_does_not_move_a_connected_client(own_trio: SentinelTrio) -> None:
    client = new_client(own_trio.url)
    await client.open()
    stranger, replica = own_trio.sentinel_ports[0], own_trio.replica.port or 0
    ask(stranger, "SENTINEL", "REMOVE", "names")
    ask(stranger, "SENTINEL", "MONITOR", "names", "127.0.0.1", replica, 2)
    await asyncio.sleep(PRIMARY_CHECK_SECONDS + 1.5)
    assert client.epoch == 1
    assert client.is_connected
    await client.close()
