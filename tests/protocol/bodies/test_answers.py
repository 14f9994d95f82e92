"""Answers byte for byte: examples of the specification, and bodies written by the remoting library of 5.5.0."""

import json
from dataclasses import replace

import pytest

from routebook.model.broker import BrokerGroup, DataVersion, QueueData, TopicMapping, TopicRoute
from routebook.protocol.answer_bodies import (
    Dialect,
    encode_cluster_info,
    encode_data_version,
    encode_kv_table,
    encode_member_group,
    encode_route,
    encode_topic_list,
    route_dialect,
)

PLAIN, STANDARD = Dialect.PLAIN, Dialect.STANDARD

TWO = BrokerGroup("broker-a", "DefaultCluster", addresses={1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})
MAPPING = TopicMapping("TopicA", "broker-a", 4, 7, current_ids=((0, 0), (2, 1)))
ROUTE = TopicRoute(
    queues={"broker-a": QueueData(8, 8)},
    groups=(TWO,),
    filters={"10.0.0.1:10911": ("10.0.0.1:30000",)},
    mappings={"broker-a": MAPPING},
    order_conf="broker-a:8",
)
SPEC_5_1 = (
    '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a",'
    '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{"10.0.0.1:10911":["10.0.0.1:30000"]},'
    '"orderTopicConf":"broker-a:8","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
    '"writeQueueNums":8}],"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{"0":0,"2":1},'
    '"dirty":false,"epoch":7,"scope":"__global__","topic":"TopicA","totalQueues":4}}}'
)

AWKWARD = TopicRoute(
    queues={"b": QueueData(0, 0, -6)},
    groups=(
        BrokerGroup(
            "bä\u2028😀\x01\x1f\x7f\b\t\n\f\r\0",
            "c<'\"\\/&>",
            zone="",
            addresses={identity: f"h:{identity}" for identity in (0, 2, 10, 2**53, -1)},
        ),
    ),
    filters={"B:1": ("q",), "a:1": (), "z:1": ("x", "\ud800y", "y\udc00\ud800")},
    mappings={
        "a": TopicMapping("T", "b", 4, 2**53 - 1),
        "b": TopicMapping("T", "b", 4, 2**53, current_ids=((10, 1), (2, 1), (-3, 1))),
    },
    order_conf="",
)
AWKWARD_STANDARD = (
    '{"brokerDatas":[{"brokerAddrs":{"-1":"h:-1","0":"h:0","2":"h:2","10":"h:10",'
    '"9007199254740992":"h:9007199254740992"},"brokerName":"bä\u2028😀\\u0001\\u001f\x7f\\b\\t\\n\\f\\r\\u0000",'
    '"cluster":"c<\'\\"\\\\/&>","enableActingMaster":false,"zoneName":""}],'
    '"filterServerTable":{"B:1":["q"],"a:1":[],"z:1":["x","?y","y??"]},"orderTopicConf":"",'
    '"queueDatas":[{"brokerName":"b","perm":-6,"readQueueNums":0,"topicSysFlag":0,"writeQueueNums":0}],'
    '"topicQueueMappingByBroker":{"a":{"bname":"b","currIdMap":{},"dirty":false,"epoch":9007199254740991,'
    '"scope":"__global__","topic":"T","totalQueues":4},"b":{"bname":"b","currIdMap":{"-3":1,"2":1,"10":1},'
    '"dirty":false,"epoch":"9007199254740992","scope":"__global__","topic":"T","totalQueues":4}}}'
)
"""As the library wrote it. Its plain form has maps in the order of a hash table, and otherwise the same parts."""
AWKWARD_PLAIN = (
    AWKWARD_STANDARD.replace(
        '{"-1":"h:-1","0":"h:0","2":"h:2","10":"h:10","9007199254740992":',
        '{-1:"h:-1",0:"h:0",2:"h:2",10:"h:10",9007199254740992:',
    )
    .replace('{"-3":1,"2":1,"10":1}', "{-3:1,2:1,10:1}")
    .replace('"epoch":"9007199254740992"', '"epoch":9007199254740992')
)


def test_the_route_of_the_specification() -> None:
    assert encode_route(ROUTE, STANDARD).decode() == SPEC_5_1


def test_the_same_route_for_old_clients() -> None:
    plain = SPEC_5_1.replace('{"0":"10.0.0.1:10911","1":', '{0:"10.0.0.1:10911",1:').replace(
        '{"0":0,"2":1}', "{0:0,2:1}"
    )
    assert encode_route(ROUTE, PLAIN).decode() == plain


def test_the_body_of_the_worked_example() -> None:
    route = TopicRoute({"broker-a": QueueData(8, 8)}, (replace(TWO, addresses={0: "10.0.0.1:10911"}),))
    expected = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert encode_route(route, STANDARD) == expected
    assert len(expected) == 261


def test_special_characters_and_numbers_are_written_as_by_5_5_0() -> None:
    assert encode_route(AWKWARD, STANDARD).decode() == AWKWARD_STANDARD
    assert encode_route(AWKWARD, PLAIN).decode() == AWKWARD_PLAIN


def test_an_empty_route_has_its_three_tables() -> None:
    """A zone filter may remove everything else."""
    for dialect in Dialect:
        assert encode_route(TopicRoute({}, ()), dialect) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_an_empty_group_has_its_map_and_a_zone_only_if_set() -> None:
    route = TopicRoute({}, (BrokerGroup("b", "c", zone="az-1", acting_master=True),))
    assert encode_route(route, PLAIN) == (
        b'{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","cluster":"c","enableActingMaster":true,"zoneName":"az-1"}],'
        b'"filterServerTable":{},"queueDatas":[]}'
    )


@pytest.mark.parametrize(
    ("version", "asked", "dialect"),
    [
        (400, False, PLAIN),
        (401, False, STANDARD),
        (513, False, STANDARD),
        (0, False, PLAIN),
        (-5, False, PLAIN),
        (0, True, STANDARD),
    ],
)
def test_the_dialect_depends_on_version_and_request(version: int, asked: bool, dialect: Dialect) -> None:
    assert route_dialect(version, accept_standard_json_only=asked) is dialect


def test_cluster_info_is_plain() -> None:
    group = replace(TWO, addresses={0: "10.0.0.1:10911"})
    assert encode_cluster_info([group], {"DefaultCluster": ["broker-a"]}).decode() == (
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert encode_cluster_info([], {}) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_member_group_is_plain() -> None:
    assert encode_member_group("broker-a", "DefaultCluster", TWO.addresses).decode() == (
        '{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster"}}'
    )
    unknown = b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"y"}}'
    assert encode_member_group("x", "y", {}) == unknown
    assert encode_member_group("x", None, {}) == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x"}}'


def test_topic_lists() -> None:
    assert encode_topic_list(["TBW102", "TopicA"]) == b'{"topicList":["TBW102","TopicA"]}'
    assert encode_topic_list([]) == b'{"topicList":[]}'
    assert encode_topic_list(["DefaultCluster", "broker-a"], "10.0.0.1:10911") == (
        b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
    )


def test_key_value_tables() -> None:
    assert encode_kv_table({"k": "v"}) == b'{"table":{"k":"v"}}'
    assert encode_kv_table({}) == b'{"table":{}}'
    assert encode_kv_table({"b": "", "a": 'q"\n'}) == b'{"table":{"a":"q\\"\\n","b":""}}'


def test_large_data_versions_are_numbers() -> None:
    assert encode_data_version(DataVersion(0, 1_700_000_000_000, 3)) == (
        b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    )
    assert encode_data_version(DataVersion(-(2**63), 2**63 - 1, 2**60)) == (
        b'{"counter":1152921504606846976,"stateVersion":-9223372036854775808,"timestamp":9223372036854775807}'
    )


def test_the_standard_dialect_is_json_with_keys_in_alphabetical_order() -> None:
    for written in (encode_route(ROUTE, STANDARD), encode_cluster_info([TWO], {}, STANDARD)):
        assert written.decode() == json.dumps(json.loads(written), sort_keys=True, separators=(",", ":"))
