"""Answers have the same bytes as those of a RocketMQ 5.5 name server, with lists sorted by name."""

import json

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, BrokerGroup, QueueData, TopicMapping, TopicRoute
from routebook.protocol import answer_bodies as answers
from routebook.protocol.answer_bodies import Dialect
from routebook.replica.routes import (
    ClusterInfo,
    TopicList,
    build_cluster_info,
    build_member_group,
)
from routebook.replica.table import Table
from tests.replica.build import A, B, group, image, instance, mapping, route_of, table_of


def encode_route(route: TopicRoute) -> bytes:
    return answers.encode_route(route, Dialect.STANDARD)


def encode_cluster_info(info: ClusterInfo) -> bytes:
    return answers.encode_cluster_info(info.groups, info.clusters, Dialect.STANDARD)


def encode_member_group(members: BrokerGroup) -> bytes:
    return answers.encode_member_group(members.name, members.cluster, members.addresses, Dialect.STANDARD)


def encode_topic_list(listed: TopicList) -> bytes:
    return answers.encode_topic_list(listed.topics, listed.broker_address)


def test_a_full_route_is_written_as_the_reference_writes_it() -> None:
    table = table_of(image(group({1: B, 0: A}), {"orders": QueueData(8, 8)}, mappings={"orders": mapping()}))
    table.apply_instance(f"east/{A}", instance(filters=("10.0.0.1:30000",)))
    table.apply_kv(ORDER_TOPIC_NAMESPACE, {"orders": "broker-a:8"})
    assert encode_route(route_of(table, order=True)).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.2:10911"},"brokerName":"broker-a",'
        '"cluster":"east","enableActingMaster":false}],'
        '"filterServerTable":{"127.0.0.1:10911":["10.0.0.1:30000"]},'
        '"orderTopicConf":"broker-a:8",'
        '"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],'
        '"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{"0":0,"2":1},"dirty":false,'
        '"epoch":7,"scope":"__global__","topic":"orders","totalQueues":4}}}'
    )


def test_absent_values_are_left_out_but_an_empty_group_keeps_its_addresses() -> None:
    route = route_of(table_of(image(group({}, zone="az-1", acting_master=True), ["orders"])))
    assert encode_route(route).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{},"brokerName":"broker-a","cluster":"east","enableActingMaster":true,'
        '"zoneName":"az-1"}],"filterServerTable":{},'
        '"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":16,"topicSysFlag":0,"writeQueueNums":16}]}'
    )


def test_an_empty_zone_is_a_value() -> None:
    route = route_of(table_of(image(group(zone=""), ["orders"])))
    assert b'"zoneName":""' in encode_route(route)


def test_text_is_raw_utf_8_with_plain_slashes() -> None:
    table = table_of(image(group(name="Müller/經紀", cluster="%a\\b"), ["t"]))
    written = encode_route(route_of(table, "t"))
    assert '"brokerName":"Müller/經紀","cluster":"%a\\\\b"'.encode() in written


def test_a_lone_surrogate_is_encoded() -> None:
    route = TopicRoute(queues={}, groups=(), order_conf="x\ud800y")
    assert b'"orderTopicConf":"x?y"' in encode_route(route)


def test_integers_that_a_double_would_round_are_quoted() -> None:
    exact, beyond = 2**53 - 1, 2**53
    mappings = {
        "a": TopicMapping("t", "a", epoch=exact),
        "b": TopicMapping("t", "b", epoch=beyond),
    }
    written = json.loads(encode_route(TopicRoute(queues={}, groups=(), mappings=mappings)))
    found = written["topicQueueMappingByBroker"]
    assert (found["a"]["epoch"], found["b"]["epoch"]) == (exact, str(beyond))


def test_maps_keyed_by_numbers_are_ordered_by_number() -> None:
    addresses = {10: "h:10", 2: "h:2", 0: "h:0"}
    written = encode_route(route_of(table_of(image(group(addresses), ["orders"]))))
    assert b'{"0":"h:0","2":"h:2","10":"h:10"}' in written


def test_all_objects_have_their_keys_in_alphabetical_order() -> None:
    table = table_of(image(group(zone="z"), ["orders"], mappings={"orders": mapping()}))
    table.apply_kv(ORDER_TOPIC_NAMESPACE, {"orders": "x"})
    for written in (
        encode_route(route_of(table, order=True)),
        encode_cluster_info(build_cluster_info(table)),
    ):
        assert written.decode() == json.dumps(json.loads(written), sort_keys=True, separators=(",", ":"))


def test_the_cluster_view_is_encoded_as_by_the_reference() -> None:
    assert encode_cluster_info(build_cluster_info(Table())) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    table = table_of(image(group(), ["orders"]))
    assert encode_cluster_info(build_cluster_info(table)).decode() == (
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
        '"cluster":"east","enableActingMaster":false}},"clusterAddrTable":{"east":["broker-a"]}}'
    )


def test_a_broker_group_is_encoded_as_by_the_reference() -> None:
    table = table_of(image(group({1: B, 0: A}, zone="z", acting_master=True)))
    assert encode_member_group(build_member_group(table, "east", "broker-a")).decode() == (
        '{"brokerMemberGroup":{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.2:10911"},'
        '"brokerName":"broker-a","cluster":"east"}}'
    )
    assert encode_member_group(build_member_group(table, "y", "x")) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"y"}}'
    )


def test_topic_lists_are_encoded_as_by_the_reference() -> None:
    assert encode_topic_list(TopicList(("A", "B"))) == b'{"topicList":["A","B"]}'
    assert encode_topic_list(TopicList((), "h:1")) == b'{"brokerAddr":"h:1","topicList":[]}'
