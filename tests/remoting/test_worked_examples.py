"""The frames of the specification on the real port: the answers are RocketMQ's, byte for byte."""

import asyncio

from tests.protocol.golden_frames import golden_frames
from tests.remoting.port import remoting_port
from tests.support.peers import Peer


async def answer_to(peer: Peer, frame: bytes) -> bytes:
    peer.write(frame)
    return await peer.frame()


async def test_a_registration_and_the_lookups_that_follow(peer: Peer) -> None:
    frames = golden_frames()
    assert await answer_to(peer, frames["E5"]) == frames["E6"]
    assert await answer_to(peer, frames["E1"]) == frames["E3"]
    assert await answer_to(peer, frames["E2"]) == frames["E3"].replace(b'"opaque":1', b'"opaque":2')
    assert await answer_to(peer, frames["E9a"]) == frames["E9b"]
    assert await answer_to(peer, frames["E12a"]) == frames["E12b"]


async def test_a_lookup_of_an_unknown_topic(peer: Peer) -> None:
    frames = golden_frames()
    question = frames["E1"].replace(b"TopicA", b"NoSuch").replace(b'"opaque":1', b'"opaque":3')
    assert await answer_to(peer, question) == frames["E4"]


async def test_a_slave_gets_the_address_of_its_master(peer: Peer) -> None:
    frames = golden_frames()
    slave = frames["E5"].replace(b'"brokerId":"0"', b'"brokerId":"1"').replace(b'"opaque":4', b'"opaque":5')
    await answer_to(peer, frames["E5"])
    moved = slave.replace(b'"brokerAddr":"10.0.0.1:10911"', b'"brokerAddr":"10.0.0.2:10911"')
    assert await answer_to(peer, moved) == frames["E7a"]


async def test_a_oneway_heartbeat_gets_no_answer(peer: Peer) -> None:
    frames = golden_frames()
    # Answers on this connection come in order, so an answer to the heartbeat would come first.
    assert await answer_to(peer, frames["E8"] + frames["E9a"]) == frames["E9b"]


async def test_a_port_with_binary_answers(store_url: str, namespace_name: str) -> None:
    frames = golden_frames()
    async with (
        remoting_port(store_url, namespace_name, serialize_type="ROCKETMQ") as port,
        await Peer.connect(port.address) as peer,
    ):
        await answer_to(peer, frames["E5"])
        assert await answer_to(peer, frames["E1"]) == frames["E13"]


async def test_any_split_of_the_bytes_gets_the_same_answers(peer: Peer) -> None:
    frames = golden_frames()
    await answer_to(peer, frames["E5"])
    for byte in frames["E1"][:-1]:
        peer.write(bytes([byte]))
        await peer.writer.drain()
        await asyncio.sleep(0)
    assert await answer_to(peer, frames["E1"][-1:]) == frames["E3"]
