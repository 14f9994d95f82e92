"""Answers as bytes: standard JSON, as a RocketMQ 5.5 name server writes it.

Raw UTF-8 and a plain `/`; keys in alphabetical order, which the literals below are written in; maps by
their keys, numbers by value; what is null is left out; integers that a JSON reader with doubles would round
are quoted. The dialect of old clients (map keys that are integers stand unquoted) differs in `_number_key`
alone; no caller needs it before the remoting port.
"""

import json
from typing import Any, Final

from routebook.model.broker import BrokerGroup
from routebook.model.route import TopicRoute
from routebook.model.topic import QueueData, TopicMapping
from routebook.replica.pick_up import ClusterInfo, TopicList

_LARGEST_EXACT: Final = 2**53 - 1


def encode_route(route: TopicRoute) -> bytes:
    body: dict[str, Any] = {
        "brokerDatas": [_broker_data(group) for group in route.groups],
        "filterServerTable": route.filters,
    }
    if route.order_conf is not None:
        body["orderTopicConf"] = route.order_conf
    body["queueDatas"] = [_queue_data(name, queue) for name, queue in route.queues.items()]
    if route.mappings:
        body["topicQueueMappingByBroker"] = {bname: _mapping(mapping) for bname, mapping in route.mappings.items()}
    return _to_bytes(body)


def encode_cluster_info(info: ClusterInfo) -> bytes:
    return _to_bytes(
        {
            "brokerAddrTable": {group.name: _broker_data(group) for group in info.groups},
            "clusterAddrTable": info.clusters,
        }
    )


def encode_member_group(group: BrokerGroup) -> bytes:
    members = {"brokerAddrs": _addresses(group), "brokerName": group.name, "cluster": group.cluster}
    return _to_bytes({"brokerMemberGroup": members})


def encode_topic_list(listed: TopicList) -> bytes:
    body: dict[str, Any] = {} if listed.broker_address is None else {"brokerAddr": listed.broker_address}
    return _to_bytes({**body, "topicList": listed.topics})


def _broker_data(group: BrokerGroup) -> dict[str, Any]:
    data: dict[str, Any] = {
        "brokerAddrs": _addresses(group),
        "brokerName": group.name,
        "cluster": group.cluster,
        "enableActingMaster": group.acting_master,
    }
    if group.zone is not None:
        data["zoneName"] = group.zone
    return data


def _addresses(group: BrokerGroup) -> dict[str, str]:
    return {_number_key(broker_id): address for broker_id, address in sorted(group.addresses.items())}


def _queue_data(broker: str, queue: QueueData) -> dict[str, Any]:
    return {
        "brokerName": broker,
        "perm": _number(queue.perm),
        "readQueueNums": _number(queue.read_queues),
        "topicSysFlag": _number(queue.flags),
        "writeQueueNums": _number(queue.write_queues),
    }


def _mapping(mapping: TopicMapping) -> dict[str, Any]:
    return {
        "bname": mapping.bname,
        "currIdMap": {_number_key(logical): _number(real) for logical, real in sorted(mapping.current_ids)},
        "dirty": mapping.dirty,
        "epoch": _number(mapping.epoch),
        "scope": mapping.scope,
        "topic": mapping.topic,
        "totalQueues": _number(mapping.total_queues),
    }


def _number_key(number: int) -> str:
    return str(number)


def _number(number: int) -> int | str:
    return number if -_LARGEST_EXACT <= number <= _LARGEST_EXACT else str(number)


def _to_bytes(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    # Half a surrogate pair cannot be UTF-8; Java writes a question mark in its place too.
    return text.encode("utf-8", "replace")
