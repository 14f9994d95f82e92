"""What name servers say, read as values: both dialects, every release."""

import pytest

from routebook import remoting_client
from routebook.model.broker import BrokerGroup, QueueData
from routebook.protocol.body_json import BodyError
from tests.protocol.golden_frames import golden_frames

GROUP = BrokerGroup("broker-a", "DefaultCluster", addresses={0: "10.0.0.1:10911"})


def test_a_recorded_route_is_parsed() -> None:
    frame = golden_frames()["E3"]
    route = remoting_client.read_route(frame[8 + int.from_bytes(frame[5:8], "big") :])
    assert route.groups == (GROUP,)
    assert route.queues == {"broker-a": QueueData(8, 8, 6, 0)}
    assert (route.filters, route.mappings, route.order_conf) == ({}, {}, None)


def test_the_full_route_of_the_specification_is_parsed() -> None:
    route = remoting_client.read_route(
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"az-1"}],'
        b'"filterServerTable":{"10.0.0.1:10911":["10.0.0.1:30000"]},"orderTopicConf":"broker-a:8",'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],'
        b'"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{0:0,2:1},"dirty":false,"epoch":7,'
        b'"scope":"__global__","topic":"TopicA","totalQueues":4}}}'
    )
    assert route.groups[0].addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert (route.groups[0].zone, route.groups[0].acting_master) == ("az-1", True)
    assert route.filters == {"10.0.0.1:10911": ("10.0.0.1:30000",)}
    assert route.mappings["broker-a"].current_ids == ((0, 0), (2, 1))
    assert route.order_conf == "broker-a:8"


def test_an_absent_field_has_its_default() -> None:
    old = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":1,"writeQueueNums":4}]}'
    assert remoting_client.read_route(old).queues == {"b": QueueData(4, 4, 6, 1)}
    assert remoting_client.read_route(b"{}").groups == ()
    assert remoting_client.read_topic_list(b"{}") == frozenset()
    assert remoting_client.read_kv_table(b'{"table":{"a":"1","b":null}}') == {"a": "1"}


@pytest.mark.parametrize("key", ["0", '"0"'])
def test_cluster_info_and_member_groups_are_parsed_in_both_dialects(key: str) -> None:
    group = f'{{"brokerAddrs":{{{key}:"10.0.0.1:10911"}},"brokerName":"broker-a","cluster":"DefaultCluster"}}'
    info = f'{{"brokerAddrTable":{{"broker-a":{group}}},"clusterAddrTable":{{"DefaultCluster":["broker-a"]}}}}'
    assert remoting_client.read_cluster_info(info.encode()) == (
        {"broker-a": GROUP},
        {"DefaultCluster": frozenset({"broker-a"})},
    )
    assert remoting_client.read_member_group(f'{{"brokerMemberGroup":{group}}}'.encode()) == {0: "10.0.0.1:10911"}


def test_settings_are_parsed_without_escapes() -> None:
    assert remoting_client.read_properties(b"listenPort=9876\nkvConfigPath=/a=b\\c\n") == {
        "listenPort": "9876",
        "kvConfigPath": "/a=b\\c",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b'{"brokerDatas":{"a":1}}',
        b'{"queueDatas":[1]}',
        b'{"queueDatas":[{"perm":[]}]}',
        b'{"brokerDatas":[{"cluster":{}}]}',
    ],
)
def test_an_invalid_route_body_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        remoting_client.read_route(body)
