"""The proxy injects each fault in the direction that was asked for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.peers import Peer, server_playing
from tests.support.waiting import until

SHORT_S = 0.2


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """Before a server that answers every byte with the same byte."""

    async def echo(peer: Peer) -> None:
        while data := await peer.receive(1):
            await peer.send(data)

    async with server_playing(echo) as address, FaultProxy.before(f"redis://{address}") as proxy:
        yield proxy


async def client_of(proxy: FaultProxy) -> Peer:
    return await Peer.connect(f"127.0.0.1:{proxy.port}")


async def is_answered(peer: Peer, byte: bytes, within_s: float) -> bool:
    await peer.send(byte)
    try:
        return await asyncio.wait_for(peer.reader.readexactly(1), within_s) == byte
    except TimeoutError:
        return False


@pytest.mark.parametrize("direction", ["requests", "answers"])
async def test_one_direction_is_delayed(proxy: FaultProxy, direction: str) -> None:
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"a", 30)
        getattr(proxy, direction).delay_s = SHORT_S
        began = asyncio.get_running_loop().time()
        assert await is_answered(peer, b"b", 30)
        # The clock of the loop counts milliseconds.
        assert asyncio.get_running_loop().time() - began > SHORT_S - 0.002


@pytest.mark.parametrize("direction", ["requests", "answers"])
async def test_a_black_hole_drops_one_direction_and_keeps_the_connection(proxy: FaultProxy, direction: str) -> None:
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"a", 30)
        getattr(proxy, direction).black_hole = True
        assert not await is_answered(peer, b"b", SHORT_S)
        assert getattr(proxy, direction).dropped_bytes == 1
        proxy.heal()
        assert await is_answered(peer, b"c", 30)


async def test_a_stall_keeps_the_bytes_for_later(proxy: FaultProxy) -> None:
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"a", 30)
        proxy.stall()
        assert not await is_answered(peer, b"b", SHORT_S)
        proxy.heal()
        assert await peer.receive(1) == b"b"


async def test_the_end_of_one_direction_reaches_the_client(proxy: FaultProxy) -> None:
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"a", 30)
        proxy.answers.end()
        assert await peer.receive(1) == b""


async def test_a_cut_resets_connections_and_a_refusal_accepts_no_new_ones(proxy: FaultProxy) -> None:
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"a", 30)
        proxy.cut()
        await until(peer.is_closed)
    await proxy.refuse()
    with pytest.raises(OSError):
        await client_of(proxy)
    await proxy.accept()
    async with await client_of(proxy) as peer:
        assert await is_answered(peer, b"b", 30)
