"""A registration or heartbeat counts when it arrives, even if its turn comes later."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.remoting.port import BROKER_A, PortUnderTest, register, registration_body
from tests.support.peers import Peer
from tests.support.waiting import until

INSTANCE = "DefaultCluster/127.0.0.11:10911"
LARGE = registration_body(*(f"Topic-{number}" for number in range(1_000)))
"""Larger than what is decoded without a turn."""


async def last_heartbeat(port: PortUnderTest) -> float:
    key = port.worker.namespace.keys.table("heartbeats")
    return float(await port.worker.client.call("ZSCORE", key, INSTANCE))


@asynccontextmanager
async def no_decoding(port: PortUnderTest) -> AsyncIterator[None]:
    """As if the registration of another broker were decoded all the time."""
    async with port.worker.registry.long_work._turn:
        yield


async def test_a_changed_registration_that_waits_is_a_heartbeat(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    before = await last_heartbeat(port)
    async with no_decoding(port):
        time.sleep(0.005)  # The store's clock counts milliseconds.
        peer.write(peer.request(103, BROKER_A, LARGE))

        async def has_moved() -> bool:
            return await last_heartbeat(port) > before

        await until(has_moved)
    assert (await peer.answer()).code == 0


@pytest.mark.parametrize("code", [103, 322])
async def test_a_request_behind_another_one_of_its_connection_is_a_heartbeat(
    code: int, port: PortUnderTest, peer: Peer
) -> None:
    await register(peer)
    async with no_decoding(port):
        peer.write(peer.request(103, BROKER_A | {"brokerName": "b", "brokerAddr": "127.0.0.12:1"}, LARGE))
        await until(lambda: port.worker.registry.long_work._turn._waiters)
        before = await last_heartbeat(port)
        time.sleep(0.005)
        peer.write(peer.request(code, BROKER_A, LARGE if code == 103 else b""))

        async def has_moved() -> bool:
            return await last_heartbeat(port) > before

        await until(has_moved)
    assert [(await peer.answer()).code for _ in range(2)] == [0, 0]


async def test_a_heartbeat_overtakes_a_registration_of_its_connection(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    async with no_decoding(port):
        peer.write(peer.request(103, BROKER_A, LARGE))
        heartbeat = peer.request(904, BROKER_A)
        peer.write(heartbeat)
        answer = await peer.answer()
        assert (answer.code, answer.opaque) == (0, 3)
    assert (await peer.answer()).opaque == 2


async def test_the_registration_of_an_impostor_is_no_heartbeat(port: PortUnderTest, peer: Peer) -> None:
    """It names the instance, but the instance did not register over its connection."""
    await register(peer)
    async with await Peer.connect(port.address) as impostor:
        before = await last_heartbeat(port)
        async with no_decoding(port):
            time.sleep(0.005)
            impostor.write(impostor.request(103, BROKER_A, LARGE))
            await until(lambda: port.worker.registry.long_work._turn._waiters)
            await asyncio.sleep(0.05)
            assert await last_heartbeat(port) == before


async def test_a_peer_that_has_used_its_time_for_decoding_is_refused(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    (connection,) = port.server.port.connections
    budget = connection.peer_costs.decoding
    budget.per_second, budget.burst = 1e-9, 0.0
    budget.charge(1.0, time.monotonic())
    before = await last_heartbeat(port)
    time.sleep(0.005)
    answer = await register(peer, body=LARGE)
    assert answer.code == 2
    assert "max_decoding_percent_per_address" in (answer.remark or "")
    assert await last_heartbeat(port) > before
    assert (await register(peer)).code == 0


async def test_a_peer_whose_bodies_are_refused_soon_has_no_time_left(port: PortUnderTest, peer: Peer) -> None:
    """A broken body costs up to 8 ms. If its time counted only once, such bodies could take half of a processor."""
    broken = LARGE[:50_000]
    async with await Peer.connect(port.address, local_addr=("127.0.0.66", 0)) as attacker:
        codes: list[int] = []
        while 2 not in codes and len(codes) < 500:
            ext = BROKER_A | {"brokerName": f"attacker-{len(codes)}", "brokerAddr": "127.0.0.66:1"}
            codes.append((await attacker.ask(103, ext, broken)).code)
    assert set(codes[:-1]) == {1}
    assert codes[-1] == 2
    assert (await register(peer, body=LARGE)).code == 0
