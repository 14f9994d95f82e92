"""Every request code over the port: its answer and its effect."""

import asyncio
import json
import logging
import time
import zlib

import pytest

from routebook.remoting import handlers
from routebook.replica.routes import ClusterInfo, build_cluster_info
from routebook.replica.table import Table
from tests.protocol.bodies.compressed_bodies import compressed, content_of
from tests.remoting.port import BROKER_A, PortUnderTest, lookup, register, registration_body, route, topic
from tests.support.peers import Peer
from tests.support.waiting import until

# -- 103


async def test_a_master_registers_and_is_found(peer: Peer) -> None:
    answer = await register(peer)
    assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
    found = await route(peer, "TopicA")
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.11:10911"}
    assert found["queueDatas"][0]["readQueueNums"] == 8


async def test_a_repeated_registration_adds_no_change_to_the_history(port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    version = port.worker.registry.replica.version
    for _ in range(3):
        assert (await register(peer)).code == 0
    assert port.worker.registry.replica.version == version


@pytest.mark.parametrize("missing", ["clusterName", "brokerName", "brokerAddr", "brokerId"])
async def test_a_registration_without_its_required_fields_changes_nothing(
    missing: str, port: PortUnderTest, peer: Peer
) -> None:
    ext = {name: value for name, value in BROKER_A.items() if name != missing}
    answer = await peer.ask(103, ext, body=registration_body("TopicA", "TopicB"))
    assert answer.code == 1
    assert missing in (answer.remark or "")
    assert port.worker.registry.replica.version == 0 or not port.worker.registry.brokers()


async def test_a_wrong_checksum_is_refused(peer: Peer) -> None:
    body = registration_body("TopicA", "TopicB")
    right = str(zlib.crc32(body) & 0x7FFFFFFF)
    refused = await register(peer, body=body, bodyCrc32="1")
    assert (refused.code, refused.remark, refused.ext) == (1, "crc32 not match", {})
    assert (await register(peer, body=body, bodyCrc32=right)).code == 0


async def test_a_body_that_does_not_decode_is_refused(peer: Peer) -> None:
    answer = await register(peer, body=b'{"topicConfigSerializeWrapper":[1]}')
    assert answer.code == 1
    assert (answer.remark or "").startswith("Failed to decode RegisterBrokerBody")
    assert (await lookup(peer, "TopicA")).code == 17


async def test_one_topic_from_an_unknown_broker_is_an_increment(peer: Peer) -> None:
    answer = await register(peer, "TopicA")
    assert (answer.code, answer.remark, answer.ext) == (1, "register broker failed", {})
    await register(peer, "TopicA", "TopicB")
    assert (await register(peer, "TopicC", counter=2)).code == 0
    assert (await lookup(peer, "TopicC")).code == 0


async def test_the_answer_to_a_slave_contains_the_addresses_of_its_master(peer: Peer) -> None:
    await register(peer)
    answer = await register(peer, brokerId="1", brokerAddr="127.0.0.12:10911")
    assert answer.ext == {"haServerAddr": "127.0.0.11:10912", "masterAddr": "127.0.0.11:10911"}


async def test_a_compressed_registration(peer: Peer) -> None:
    body = compressed(content_of([b"TopicA 8 8 6 SINGLE_TAG {}", b"TopicB 4 4 6 SINGLE_TAG {}"]))
    assert (await register(peer, body=body, compressed="true")).code == 0
    assert (await route(peer, "TopicB"))["queueDatas"][0]["writeQueueNums"] == 4


async def test_the_answer_contains_the_order_topics(peer: Peer) -> None:
    await peer.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:8"})
    assert json.loads((await register(peer)).body) == {"table": {"TopicA": "broker-a:8"}}
    await peer.ask(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA"})
    assert json.loads((await register(peer)).body) == {"table": {}}


async def test_the_answer_to_a_registration_that_is_turned_down_contains_the_order_topics(peer: Peer) -> None:
    await peer.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA", "value": "broker-a:8"})
    ahead = registration_body("TopicA", "TopicB", dataVersion={"counter": 1, "stateVersion": 2, "timestamp": 1})
    await register(peer, body=ahead)
    turned_down = await register(peer, brokerAddr="127.0.0.12:10911")
    assert (turned_down.code, json.loads(turned_down.body)) == (0, {"table": {"TopicA": "broker-a:8"}})
    assert (await route(peer, "TopicA"))["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.11:10911"}


async def test_static_topics_keep_their_mapping(peer: Peer) -> None:
    # Unquoted integer keys, as brokers send them.
    mapping = (
        b'"TopicA":{"bname":"broker-a","currIdMap":{0:0,2:1},"dirty":false,"epoch":7,"scope":"__global__",'
        b'"topic":"TopicA","totalQueues":4}'
    )
    body = registration_body("TopicA", "TopicB", topicQueueMappingInfoMap={"mark": 0}).replace(b'"mark": 0', mapping)
    assert (await register(peer, body=body)).code == 0
    found = (await route(peer, "TopicA"))["topicQueueMappingByBroker"]["broker-a"]
    assert (found["currIdMap"], found["totalQueues"]) == ({"0": 0, "2": 1}, 4)


async def test_a_zone_and_filter_servers_are_shown(peer: Peer) -> None:
    body = registration_body("TopicA", "TopicB", filters=["127.0.0.1:30000"])
    await register(peer, body=body, __ZONE_NAME="az-1")
    found = await route(peer, "TopicA")
    assert found["brokerDatas"][0]["zoneName"] == "az-1"
    assert found["filterServerTable"] == {"127.0.0.11:10911": ["127.0.0.1:30000"]}


# -- 104, 322, 901, 904


async def test_an_unregistered_broker_has_no_routes(peer: Peer) -> None:
    await register(peer)
    assert (await peer.ask(104, BROKER_A)).code == 0

    async def is_gone() -> bool:
        return (await lookup(peer, "TopicA")).code == 17

    await until(is_gone)


async def test_requests_after_an_unregistration_are_handled_after_it(peer: Peer) -> None:
    await register(peer)
    await peer.ask(104, BROKER_A)
    assert (await register(peer)).code == 0
    assert (await lookup(peer, "TopicA")).code == 0


async def test_an_unregistration_without_fields_is_a_success(peer: Peer) -> None:
    assert (await peer.ask(104)).code == 0


async def test_a_data_version_is_compared_with_the_stored_one(peer: Peer) -> None:
    await register(peer, counter=3)
    ext = {"clusterName": "DefaultCluster", "brokerAddr": "127.0.0.11:10911"}
    same = b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    answer = await peer.ask(322, ext, same)
    assert (answer.ext, answer.body) == ({"changed": "false"}, same)
    answer = await peer.ask(322, ext, same.replace(b"3", b"4"))
    assert (answer.ext, answer.body) == ({"changed": "true"}, same)
    assert (await peer.ask(322, ext)).ext == {"changed": "true"}
    unknown = await peer.ask(322, ext | {"brokerAddr": "127.0.0.99:1"}, same)
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    assert (await peer.ask(322, {"clusterName": "DefaultCluster"}, same)).code == 1
    assert (await peer.ask(322, ext, b"{")).code == 1


@pytest.mark.parametrize("code", [322, 904])
async def test_a_heartbeat_moves_the_deadline(code: int, port: PortUnderTest, peer: Peer) -> None:
    await register(peer)
    heartbeats = port.worker.namespace.keys.table("heartbeats")
    before = await port.worker.client.call("ZSCORE", heartbeats, "DefaultCluster/127.0.0.11:10911")
    time.sleep(0.005)  # The store's clock counts milliseconds.
    assert (await peer.ask(code, BROKER_A)).code == 0
    after = await port.worker.client.call("ZSCORE", heartbeats, "DefaultCluster/127.0.0.11:10911")
    assert float(after) > float(before)


async def test_a_heartbeat_of_an_unknown_broker_is_a_success_and_creates_nothing(
    port: PortUnderTest, peer: Peer
) -> None:
    assert (await peer.ask(904, BROKER_A)).code == 0
    assert (await peer.ask(904, {"clusterName": "DefaultCluster"})).code == 1
    assert port.worker.registry.brokers() == ()


async def test_members_of_a_group_have_their_true_ids_and_the_cluster_of_the_request(peer: Peer) -> None:
    await register(peer)
    await register(peer, brokerId="2", brokerAddr="127.0.0.12:10911")
    answer = await peer.ask(901, {"clusterName": "Whatever", "brokerName": "broker-a"})
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert answer.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.11:10911",2:"127.0.0.12:10911"},'
        b'"brokerName":"broker-a","cluster":"Whatever"}}'
    )
    answer = await peer.ask(901, {"clusterName": "y", "brokerName": "x"})
    assert answer.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"y"}}'


# -- 105, 106


async def test_old_clients_get_unquoted_keys_unless_they_request_standard_json(peer: Peer) -> None:
    await register(peer)
    quoted, unquoted = b'{"0":"127.0.0.11:10911"}', b'{0:"127.0.0.11:10911"}'
    assert quoted in (await peer.ask(105, {"topic": "TopicA"}, version=401)).body
    assert unquoted in (await peer.ask(105, {"topic": "TopicA"}, version=399)).body
    only_standard = {"topic": "TopicA", "acceptStandardJsonOnly": "true"}
    assert quoted in (await peer.ask(105, only_standard, version=0)).body
    # Both forms are cached, and both are dropped when the route changes.
    await register(peer, topic("TopicA", readQueueNums=3), "TopicB", counter=2)
    for version in (399, 401):
        assert b'"readQueueNums":3' in (await peer.ask(105, {"topic": "TopicA"}, version=version)).body


async def test_a_client_with_a_zone_gets_only_brokers_of_that_zone(peer: Peer) -> None:
    await register(peer, __ZONE_NAME="az-1")
    await register(peer, brokerName="broker-b", brokerAddr="127.0.0.12:10911", __ZONE_NAME="az-2")
    answer = await lookup(peer, "TopicA", __ZONE_MODE="TRUE", __ZONE_NAME="AZ-2")
    assert b"broker-a" not in answer.body
    assert b'{0:"127.0.0.12:10911"}' in answer.body  # the plain dialect, whatever the version
    nobody = await lookup(peer, "TopicA", __ZONE_MODE="true", __ZONE_NAME="az-3")
    assert (nobody.code, nobody.body) == (0, b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}')
    for ignored in ({"__ZONE_MODE": "true"}, {"__ZONE_NAME": "az-1"}, {"__ZONE_MODE": "no", "__ZONE_NAME": "az-1"}):
        assert len((await route(peer, "TopicA", **ignored))["brokerDatas"]) == 2


async def test_the_cluster_table(peer: Peer) -> None:
    assert (await peer.ask(106)).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    await register(peer)
    assert (await peer.ask(106)).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.11:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


async def test_the_cluster_table_is_encoded_once_for_all_clients(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def look(table: Table) -> ClusterInfo:
        made.append(table)
        return build_cluster_info(table)

    monkeypatch.setattr(handlers, "build_cluster_info", look)
    await register(peer)
    first = [(await peer.ask(106)).body for _ in range(5)]
    assert len(made) == 1
    await register(peer)  # A repeated registration changes nothing.
    assert (await peer.ask(106)).body == first[0]
    assert len(made) == 1
    await register(peer, brokerId="1", brokerAddr="127.0.0.12:10911")
    assert b'1:"127.0.0.12:10911"' in (await peer.ask(106)).body
    assert len(made) == 2


# -- topics


async def test_lists_of_topics(peer: Peer) -> None:
    await register(peer, topic("Unit", topicSysFlag=1), topic("Sub", topicSysFlag=2), topic("Both", topicSysFlag=3))

    async def listed(code: int, **ext: str) -> object:
        return json.loads((await peer.ask(code, ext)).body)

    assert await listed(206) == {"topicList": ["Both", "Sub", "Unit"]}
    assert await listed(224, cluster="DefaultCluster") == {"topicList": ["Both", "Sub", "Unit"]}
    assert await listed(224, cluster="nobody") == {"topicList": []}
    assert await listed(224) == {"topicList": []}
    assert await listed(304) == {"brokerAddr": "127.0.0.11:10911", "topicList": ["DefaultCluster", "broker-a"]}
    assert await listed(311) == {"topicList": ["Both", "Unit"]}
    assert await listed(312) == {"topicList": ["Both", "Sub"]}
    assert await listed(313) == {"topicList": ["Sub"]}


async def test_a_topic_is_deleted_everywhere_or_in_one_cluster(peer: Peer) -> None:
    await register(peer)
    assert (await peer.ask(216, {"topic": "TopicA", "clusterName": "nobody"})).code == 0
    assert (await lookup(peer, "TopicA")).code == 0
    assert (await peer.ask(216, {"topic": "TopicA", "clusterName": "DefaultCluster"})).code == 0
    assert (await lookup(peer, "TopicA")).code == 17
    assert (await peer.ask(216, {"topic": "TopicB"})).code == 0
    assert (await lookup(peer, "TopicB")).code == 17
    for ext in ({"topic": "NeverThere"}, {}):
        assert (await peer.ask(216, ext)).code == 0


async def test_a_single_topic_is_registered(peer: Peer) -> None:
    await register(peer)
    queue = '{"brokerName":"%s","perm":4,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":3}'
    known, unknown = queue % "broker-a", queue % "nobody"
    for body in (b"", b"{}", b'{"queueDatas":[]}', f'{{"queueDatas":[{unknown}]}}'.encode()):
        assert (await peer.ask(217, {"topic": "New"}, body)).code == 0
        assert (await lookup(peer, "New")).code == 17
    assert (await peer.ask(217, {"topic": "New"}, b"{")).code == 1
    assert (await peer.ask(217, {}, f'{{"queueDatas":[{known}]}}'.encode())).code == 0
    assert (await peer.ask(217, {"topic": "New"}, f'{{"queueDatas":[{known}]}}'.encode())).code == 0
    assert (await route(peer, "New"))["queueDatas"][0]["perm"] == 4


async def test_write_permission_is_removed_and_added(peer: Peer) -> None:
    await register(peer, topic("TopicA", perm=7), "TopicB")
    assert (await peer.ask(205, {"brokerName": "broker-a"})).ext == {"wipeTopicCount": "2"}
    assert (await route(peer, "TopicA"))["queueDatas"][0]["perm"] == 5
    assert (await peer.ask(327, {"brokerName": "broker-a"})).ext == {"addTopicCount": "2"}
    assert (await route(peer, "TopicA"))["queueDatas"][0]["perm"] == 6
    assert (await peer.ask(205, {"brokerName": "nobody"})).ext == {"wipeTopicCount": "0"}
    assert (await peer.ask(327)).ext == {"addTopicCount": "0"}


# -- key-values


async def test_key_values(peer: Peer) -> None:
    named = {"namespace": "ns", "key": "k"}
    missing = await peer.ask(101, named)
    assert (missing.code, missing.ext, missing.remark) == (22, {}, "No config item, Namespace: ns Key: k")
    missing = await peer.ask(219, {"namespace": "ns"})
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: ns")
    assert (await peer.ask(100, named | {"value": "v"})).code == 0
    assert (await peer.ask(101, named)).ext == {"value": "v"}
    assert (await peer.ask(219, {"namespace": "ns"})).body == b'{"table":{"k":"v"}}'
    assert (await peer.ask(102, named)).code == 0
    assert (await peer.ask(102, named)).code == 0
    assert (await peer.ask(219, {"namespace": "ns"})).body == b'{"table":{}}'


async def test_a_key_without_a_value_does_not_exist(peer: Peer) -> None:
    named = {"namespace": "ns", "key": "k"}
    await peer.ask(100, named | {"value": "v"})
    assert (await peer.ask(100, named)).code == 0
    assert (await peer.ask(101, named)).code == 22
    assert (await peer.ask(219, {"namespace": "ns"})).body == b'{"table":{}}'
    nameless = await peer.ask(100, {"namespace": "ns", "value": "v"})
    assert (nameless.code, nameless.remark) == (1, "namespace or key is null")


# -- the rest


@pytest.mark.parametrize("code", [0, 1, 105_000, 905, -1])
async def test_an_unknown_code_is_not_supported(code: int, peer: Peer) -> None:
    answer = await peer.ask(code)
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


@pytest.mark.parametrize("code", [105, 103, 1234, 106])
async def test_a_oneway_is_handled_and_never_answered(code: int, peer: Peer) -> None:
    peer.send_oneway(code, {"topic": "NoSuch"})
    assert (await peer.ask(106)).code == 0  # `ask` checks that this is the answer to its own request.


@pytest.mark.parametrize("code", [217, 322])
async def test_a_body_that_would_delay_lookups_is_not_parsed(code: int, peer: Peer) -> None:
    """A body that only the slow lenient parser could read would take seconds."""
    answer = await peer.ask(code, BROKER_A | {"topic": "TopicA"}, b"{'a':[" + b"{}," * 300_000 + b"{}]}")
    assert answer.code == 1
    assert "body is '900010 bytes'. Allowed: at most" in (answer.remark or "")


async def test_an_invalid_frame_closes_the_connection(port: PortUnderTest, peer: Peer) -> None:
    peer.write(peer.request(106, {"x": "y" * 200_000}))
    assert await peer.is_closed()
    assert sum(port.server.port.violations.values()) == 1


# -- what is no frame


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
async def test_an_http_request_is_answered_with_the_http_port(
    method: str, port: PortUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(f"{method} /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"This is the RocketMQ port; HTTP is on port 8080.\n")
    assert "An HTTP request arrived on the RocketMQ port" in caplog.text


async def test_another_impossible_length_gets_no_answer(port: PortUnderTest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(b"GETX" + bytes(20))
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()
