"""Which connections are closed when the port is full: known brokers get in, whatever a crowd of others does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from routebook.listeners import acceptor as acceptor_module
from routebook.remoting import port as port_module
from routebook.remoting import room as room_module
from tests.remoting.port import PortUnderTest, register, remoting_port
from tests.support.peers import Peer
from tests.support.waiting import until

LIMIT = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "SWEEP_S", 0.05)
    monkeypatch.setattr(room_module, "OBSERVED_EVERY_S", 0.05)
    monkeypatch.setattr(acceptor_module, "SPARED_SECONDS", 0.0)


@asynccontextmanager
async def full_port(store_url: str, namespace: str, crowd: list[Peer], **settings: int) -> AsyncIterator[PortUnderTest]:
    async with remoting_port(store_url, namespace, max_connections=LIMIT, **settings) as port:
        try:
            yield port
        finally:
            for one in crowd:
                one.abort()


async def new_broker(port: PortUnderTest, number: int, *, source: str = "127.0.0.66") -> Peer:
    peer = await Peer.connect(port.address, local_addr=(source, 0))
    await register(peer, brokerName=f"new-{number}", brokerAddr=f"127.0.1.{number}:10911")
    return peer


async def known_broker(port: PortUnderTest, *, source: str = "127.0.0.77") -> Peer:
    peer = await Peer.connect(port.address, local_addr=(source, 0))
    assert (await register(peer)).code == 0
    return peer


async def is_open(peer: Peer) -> bool:
    try:
        return (await peer.ask(206)).code == 0
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return False


async def test_a_crowd_of_new_brokers_does_not_lock_out_a_known_one(store_url: str, namespace_name: str) -> None:
    crowd: list[Peer] = []
    async with full_port(store_url, namespace_name, crowd) as port:
        crowd += [await new_broker(port, number) for number in range(LIMIT + 5)]
        async with await known_broker(port) as broker:
            crowd += [await new_broker(port, number) for number in range(100, 115)]
            assert await is_open(broker)
        assert port.server.port.cut["room"] >= 15


async def test_a_crowd_at_the_same_address_does_not_close_a_known_broker(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_module, "KNOWN_AFTER_S", 1.0)
    crowd: list[Peer] = []
    source = "127.0.0.66"
    async with full_port(store_url, namespace_name, crowd) as port:
        async with await known_broker(port, source=source):
            await asyncio.sleep(1.5)
        crowd += [await new_broker(port, number) for number in range(LIMIT)]
        async with await known_broker(port, source=source) as broker:
            crowd += [await new_broker(port, number) for number in range(100, 115)]
            assert await is_open(broker)


async def test_without_kept_slots_an_address_with_most_connections_makes_room_for_others(
    store_url: str, namespace_name: str
) -> None:
    crowd: list[Peer] = []
    async with full_port(store_url, namespace_name, crowd, kept_connections_percent=0) as port:
        crowd += [await new_broker(port, number) for number in range(LIMIT)]
        await until(lambda: port.server.port.room._crowd is not None or len(port.server.port.connections) < LIMIT)
        async with await Peer.connect(port.address, local_addr=("127.0.0.66", 0)) as another:
            assert not await is_open(another)
        async with await known_broker(port) as broker:
            assert await is_open(broker)


async def test_ordinary_slots_that_become_free_are_given_to_those_in_kept_slots(
    store_url: str, namespace_name: str
) -> None:
    crowd: list[Peer] = []
    async with full_port(store_url, namespace_name, crowd) as port:
        crowd += [await new_broker(port, number) for number in range(LIMIT)]
        room = port.server.port.room
        assert len(room._in_kept_slots) == LIMIT // 5
        for _ in range(LIMIT // 2):
            crowd.pop(0).abort()
        await until(lambda: len(port.server.port.connections) == LIMIT // 2)
        assert not room._in_kept_slots
