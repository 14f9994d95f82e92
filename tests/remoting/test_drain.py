"""Stopping a worker: peers that know GO_AWAY get it as an answer, others are served until the end."""

import asyncio

import pytest

from tests.remoting.port import lookup, register, remoting_port
from tests.support.peers import Peer
from tests.support.waiting import until


async def test_peers_that_know_go_away_get_it_and_others_are_served(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name) as port, await Peer.connect(port.address) as peer:
        await register(peer)
        draining = asyncio.ensure_future(port.server.drain(30, asyncio.Event()))
        await until(lambda: port.server.port.is_draining)
        for code, ext in ((105, {"topic": "TopicA"}), (206, None), (1234, None)):
            answer = await peer.ask(code, ext, version=476)
            assert (answer.code, answer.remark) == (1500, "please go away")
        assert (await peer.ask(105, {"topic": "TopicA"}, version=475)).code == 0
        assert (await peer.ask(206, version=475)).code == 0
        with pytest.raises(OSError):
            await Peer.connect(port.address)
        await peer.close()
        await asyncio.wait_for(draining, 30)


async def test_a_second_signal_ends_the_drain(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name) as port, await Peer.connect(port.address) as peer:
        await register(peer)
        forced = asyncio.Event()
        draining = asyncio.ensure_future(port.server.drain(30, forced))
        forced.set()
        await asyncio.wait_for(draining, 30)
        await port.server.close()
        assert await peer.is_closed()


async def test_without_a_graceful_shutdown_connections_are_just_closed(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, enable_shutdown_gracefully="false") as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer)
        await asyncio.wait_for(port.server.drain(30, asyncio.Event()), 5)
        assert (await lookup(peer, "TopicA")).code == 0
        await port.server.close()
        assert await peer.is_closed()


async def test_requests_sent_before_the_end_are_answered(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name) as port, await Peer.connect(port.address) as peer:
        peer.write(b"".join(peer.request(206) for _ in range(100)))
        await peer.answer()
        await port.server.close()
        for _ in range(99):
            assert (await peer.answer()).code == 0
        assert await peer.is_closed()


async def test_a_worker_that_stops_removes_no_broker(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, connection_grace_ms=0) as staying:
        async with (
            remoting_port(store_url, namespace_name, connection_grace_ms=0) as leaving,
            await Peer.connect(leaving.address) as peer,
        ):
            await register(peer)
            await leaving.server.drain(0.05, asyncio.Event())
            await leaving.server.close()
        async with await Peer.connect(staying.address) as other:
            await asyncio.sleep(0.3)
            assert (await lookup(other, "TopicA")).code == 0
