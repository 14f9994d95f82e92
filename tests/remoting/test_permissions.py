"""Administrative requests are refused when other machines can reach the port, unless a setting allows them."""

from collections.abc import Mapping

import pytest

from tests.remoting.port import BROKER_A, lookup, register, remoting_port
from tests.support.peers import Peer

KEY = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:4"}
ADMINISTRATIVE: Mapping[int, tuple[dict[str, str], bytes]] = {
    100: (KEY, b""),
    101: (KEY, b""),
    102: (KEY, b""),
    205: ({"brokerName": "broker-a"}, b""),
    216: ({"topic": "TopicA"}, b""),
    219: ({"namespace": "ORDER_TOPIC_CONFIG"}, b""),
    318: ({}, b"enableTopicList=false\n"),
    327: ({"brokerName": "broker-a"}, b""),
}
REGISTER_TOPIC = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'


@pytest.mark.parametrize("code", ADMINISTRATIVE)
async def test_a_port_for_other_machines_refuses_administrative_requests(
    code: int, store_url: str, namespace_name: str
) -> None:
    ext, body = ADMINISTRATIVE[code]
    async with (
        remoting_port(store_url, namespace_name, bind_address="0.0.0.0", remoting_config_updates="true") as port,
        await Peer.connect(port.address) as peer,
    ):
        await register(peer, "TopicA", "TopicB")
        version = port.worker.replica.version
        answer = await peer.ask(code, ext, body)
        assert answer.code == 16
        assert "remoting_admin" in (answer.remark or "")
        assert "docs/security.md" in (answer.remark or "")
        assert port.worker.replica.version == version


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, 0),
        ({"remoting_admin": "off"}, 16),
        ({"bind_address": "localhost"}, 0),
        ({"bind_address": "::1"}, 0),
        ({"bind_address": "127.0.0.5"}, 0),
        ({"bind_address": "0.0.0.0"}, 16),
        ({"bind_address": "::"}, 16),
        ({"bind_address": "10.1.2.3"}, 16),
        ({"bind_address": "0.0.0.0", "remoting_admin": "open"}, 0),
        ({"bind_address": "0.0.0.0", "remoting_admin": "off"}, 16),
    ],
)
async def test_the_address_and_the_setting_decide(
    settings: dict[str, str], code: int, store_url: str, namespace_name: str
) -> None:
    async with remoting_port(store_url, namespace_name, **settings) as port, await Peer.connect(port.address) as peer:
        assert (await peer.ask(205, {"brokerName": "broker-a"})).code == code


async def test_what_brokers_and_clients_send_needs_no_permission(store_url: str, namespace_name: str) -> None:
    async with (
        remoting_port(store_url, namespace_name, bind_address="0.0.0.0") as port,
        await Peer.connect(port.address) as peer,
    ):
        assert (await register(peer, "TopicA", "TopicB")).code == 0
        assert (await lookup(peer, "TopicA")).code == 0
        for code in (106, 206, 224, 304, 311, 312, 313, 319, 322, 901, 904, 104):
            assert (await peer.ask(code, BROKER_A | {"cluster": "DefaultCluster"})).code == 0, code


async def test_a_broker_registers_a_topic_for_itself_only(store_url: str, namespace_name: str) -> None:
    """217, which brokers with `enableSingleTopicRegister` send over the connection of their registration."""
    async with (
        remoting_port(store_url, namespace_name, bind_address="0.0.0.0") as port,
        await Peer.connect(port.address) as broker,
        await Peer.connect(port.address) as other,
    ):
        await register(broker, "TopicA", "TopicB")
        refused = await other.ask(217, {"topic": "TopicC"}, REGISTER_TOPIC)
        assert (refused.code, "remoting_admin" in (refused.remark or "")) == (16, True)
        assert (await lookup(other, "TopicC")).code == 17
        assert (await broker.ask(217, {"topic": "TopicC"}, REGISTER_TOPIC)).code == 0
        assert (await lookup(other, "TopicC")).code == 0
