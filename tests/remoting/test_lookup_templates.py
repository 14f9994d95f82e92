"""Lookups that match their connection's template get the same answers as parsed ones."""

from functools import partial
from typing import Any

import pytest

from routebook.protocol.frame import Request
from routebook.remoting.lookups import BATCH_BYTES
from tests.protocol.plain_frames import framed
from tests.remoting.port import (
    BROKER_A,
    PortUnderTest,
    lookup,
    register,
    registration_body,
    remoting_port,
    route,
    topic,
)
from tests.support.peers import Peer
from tests.support.waiting import until

MANY = 3_000


def request(name: str, *, opaque: int, version: int = 513, flag: int = 0, more: str = "") -> bytes:
    header = (
        f'{{"code":105,"extFields":{{"topic":"{name}"{more}}},"flag":{flag},"language":"JAVA","opaque":{opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    )
    return framed(header.encode())


async def establish_template(port: PortUnderTest, peer: Peer, sent: bytes) -> None:
    """Sends the request until the connection has a template."""
    for _ in range(3):
        peer.write(sent)
        await peer.frame()


def forbid_parsed_lookups(port: PortUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(request: Request) -> bytes:
        raise AssertionError(f"{request} was parsed")

    monkeypatch.setattr(port.server.port.lookups, "find", find)


async def test_only_the_sampled_lookup_is_timed(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)

    def timed() -> float | None:
        return port.metrics.registry.get_sample_value("routebook_lookup_seconds_count", {"port": "remoting"})

    await establish_template(port, peer, request("TopicA", opaque=1))
    assert timed() == 0
    port.server.sample_next()
    port.server.sample_next()
    await establish_template(port, peer, request("TopicA", opaque=2))
    assert timed() == 1
    port.server.sample_next()
    peer.write(request("NoSuchTopic", opaque=3))
    await peer.frame()
    assert timed() == 1, "no lookup was answered by its template"
    await establish_template(port, peer, request("TopicA", opaque=4))
    assert timed() == 2


@pytest.mark.parametrize(
    ("version", "more"),
    [
        (513, ""),
        (401, ""),
        (399, ""),
        (399, ',"acceptStandardJsonOnly":"true"'),
        (513, ',"__ZONE_MODE":"true","__ZONE_NAME":"z"'),
    ],
)
async def test_answers_are_those_to_parsed_lookups(port: PortUnderTest, peer: Peer, version: int, more: str) -> None:
    await register(peer, "TopicA", "TopicB", "Töpic", topic("TopicR", readQueueNums=3))
    requests = [
        request(name, opaque=opaque, version=version, more=more)
        for opaque, name in enumerate(["TopicA", "TopicB", "Unknown", "", "Töpic", "TopicR", "TopicA"])
    ]
    async with await Peer.connect(port.address) as modern:
        for name in ("TopicA", "TopicB"):
            assert (await lookup(modern, name)).code == 0
    by_new_connections = []
    for one in requests:
        async with await Peer.connect(port.address) as new_peer:
            new_peer.write(one)
            by_new_connections.append(await new_peer.frame())
    await establish_template(port, peer, requests[0])
    one_by_one = []
    for one in requests:
        peer.write(one)
        one_by_one.append(await peer.frame())
    peer.write(b"".join(requests))
    together = [await peer.frame() for _ in requests]
    assert one_by_one == by_new_connections
    assert together == by_new_connections


async def test_cached_routes_are_answered_without_parsing(
    port: PortUnderTest, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(peer)
    for name in ("TopicA", "TopicB"):
        await establish_template(port, peer, request(name, opaque=1))
    found = port.server.port.lookups.found
    forbid_parsed_lookups(port, monkeypatch)
    peer.write(b"".join(request("TopicB", opaque=opaque) for opaque in range(100)))
    assert [(await peer.answer()).opaque for _ in range(100)] == list(range(100))
    assert port.server.port.lookups.found == found + 100


async def test_a_changed_route_is_answered_at_once(peer: Peer) -> None:
    await register(peer)
    for _ in range(5):
        assert (await route(peer, "TopicA"))["queueDatas"][0]["readQueueNums"] == 8
    await register(peer, topic("TopicA", readQueueNums=5), "TopicB", counter=2)
    assert (await route(peer, "TopicA"))["queueDatas"][0]["readQueueNums"] == 5
    await peer.ask(216, {"topic": "TopicA"})
    assert (await lookup(peer, "TopicA")).code == 17


async def test_other_requests_in_between_are_answered(peer: Peer, port: PortUnderTest) -> None:
    await register(peer)
    await establish_template(port, peer, request("TopicA", opaque=1))
    peer.write(request("TopicA", opaque=7) + peer.request(106) + request("TopicA", opaque=8)[:50])
    first = await peer.answer()
    peer.write(request("TopicA", opaque=8)[50:] + request("TopicA", opaque=9))
    rest = [await peer.answer() for _ in range(3)]
    assert first.opaque == 7
    assert {8, 9} < {answer.opaque for answer in rest}


async def test_oneway_lookups_are_not_answered(peer: Peer, port: PortUnderTest) -> None:
    await register(peer)
    for opaque in range(1, 10):
        peer.write(request("TopicA", opaque=opaque, flag=2) + request("TopicA", opaque=100 * opaque))
        assert (await peer.answer()).opaque == 100 * opaque
    for opaque in range(1, 10):
        peer.write(request("TopicA", opaque=opaque, flag=2))
        assert (await lookup(peer, "TopicA")).code == 0


async def test_a_peer_that_does_not_read_gets_all_answers_later_in_order(port: PortUnderTest, peer: Peer) -> None:
    brokers = [(f"broker-{number:02}", f"127.0.2.{number + 1}:10911") for number in range(40)]
    for name, address in brokers:
        assert (await register(peer, brokerName=name, brokerAddr=address)).code == 0
    await establish_template(port, peer, request("TopicA", opaque=1))
    peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
    connection: Any
    (connection,) = port.server.port.connections
    lookups = port.server.port.lookups

    def is_answered_or_blocked(found: int) -> bool:
        return lookups.found == found or connection._writes_paused

    for begin in range(0, MANY, 100):
        # One chunk that ends with a frame, since the lookups of others are parsed.
        found = lookups.found + 100
        peer.write(b"".join(request("TopicA", opaque=opaque) for opaque in range(begin, begin + 100)))
        await until(partial(is_answered_or_blocked, found))
    held = connection._transport.get_write_buffer_size()
    assert port.server.port.high_water <= held < port.server.port.high_water + 2 * BATCH_BYTES
    peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
    assert [(await peer.answer()).opaque for _ in range(MANY)] == list(range(MANY))


async def test_templates_are_not_used_while_the_port_drains(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    await establish_template(port, peer, request("TopicA", opaque=1))
    port.server.port.is_draining = True
    peer.write(request("TopicA", opaque=2))
    assert (await peer.answer()).code == 1500


async def test_templates_are_not_used_while_the_service_warms_up(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, wait_seconds_for_service=600) as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer)
        await establish_template(port, peer, request("TopicA", opaque=1))
        port.worker.live.apply({"need_wait_for_service": "true"})
        peer.write(request("TopicA", opaque=2))
        assert (await peer.answer()).remark == "name server not ready"
        port.worker.live.apply({})
        peer.write(request("TopicA", opaque=3))
        assert (await peer.answer()).code == 0


async def test_a_port_with_binary_answers_does_not_use_templates(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, serialize_type="ROCKETMQ") as port,
        await Peer.connect(port.address) as peer,
    ):
        peer.write(peer.request(103, BROKER_A, registration_body("TopicA", "TopicB")))
        await peer.frame()
        for opaque in range(5):
            peer.write(request("TopicA", opaque=opaque))
            answer = await peer.frame()
            assert answer[4] == 1
            assert answer.endswith(b"}")
