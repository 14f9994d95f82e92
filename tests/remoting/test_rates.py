"""Requests and lookups per second: too many requests are answered busy, too many lookups are read more slowly."""

import time

from tests.remoting.port import lookup, register, remoting_port
from tests.support.peers import Peer
from tests.support.waiting import until

OTHER = ("127.0.0.77", 0)


async def test_requests_beyond_the_rate_of_an_address_are_answered_busy(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, max_requests_per_second_per_address=10) as port,
        await Peer.connect(port.address) as peer,
        await Peer.connect(port.address, local_addr=OTHER) as other,
    ):
        await register(peer)
        answers = [await peer.ask(206) for _ in range(60)]
        refused = [answer for answer in answers if answer.code == 2]
        assert len(refused) > 20
        assert refused[0].remark == "[OVERLOAD]max_requests_per_second_per_address allows 10 requests a second"
        assert (await register(peer)).code == 0
        assert (await peer.ask(904, {"clusterName": "DefaultCluster", "brokerAddr": "127.0.0.11:10911"})).code == 0
        assert (await lookup(peer, "TopicA")).code == 0
        assert (await other.ask(206)).code == 0
        (audited,) = port.worker.registry.audit.take_refusals()
        assert (audited.caller.verb, audited.count) == ("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", len(refused))
        assert "max_requests_per_second_per_address" in audited.reason


async def test_the_rate_of_all_addresses_is_limited(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, max_requests_per_second=5) as port:
        answers = []
        for number in range(30):
            async with await Peer.connect(port.address, local_addr=(f"127.0.0.{100 + number}", 0)) as peer:
                answers.append(await peer.ask(206))
        refused = [answer for answer in answers if answer.code == 2]
        assert refused
        assert refused[0].remark == "[OVERLOAD]max_requests_per_second allows 5 requests a second"


async def test_lookups_beyond_the_rate_of_an_address_are_answered_later(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, max_lookups_per_second_per_address=20) as port,
        await Peer.connect(port.address) as peer,
        await Peer.connect(port.address, local_addr=OTHER) as other,
    ):
        await register(other)
        assert (await lookup(other, "TopicA")).code == 0
        began = time.monotonic()
        for _ in range(100):
            assert (await lookup(peer, "TopicA")).code == 0
        # 40 at once, then 20 a second.
        assert time.monotonic() - began > 2


async def test_a_connection_that_is_paused_and_closes_leaves_nothing_behind(
    store_url: str, namespace_name: str
) -> None:
    async with remoting_port(store_url, namespace_name, max_lookups_per_second_per_address=20) as port:
        async with await Peer.connect(port.address) as peer:
            peer.write(b"".join(peer.request(105, {"topic": "T"}) for _ in range(100)))
            await peer.answer()
        await until(lambda: not port.server.port.connections)
