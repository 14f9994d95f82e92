"""Bodies of answers from the reference model, in both kinds of JSON."""

import json
from collections.abc import Mapping
from typing import Any

from routebook.model.broker import QueueData, TopicMapping
from tests.reference.registry import Group


def broker_data(name: str, group: Group, addresses: Mapping[int, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "brokerAddrs": dict(addresses),
        "brokerName": name,
        "cluster": group.cluster,
        "enableActingMaster": group.acting_master,
    }
    return fields if group.zone is None else fields | {"zoneName": group.zone}


def queue_data(name: str, queues: QueueData) -> dict[str, Any]:
    return {
        "brokerName": name,
        "perm": queues.perm,
        "readQueueNums": queues.read_queues,
        "topicSysFlag": queues.flags,
        "writeQueueNums": queues.write_queues,
    }


def mapping_data(mapping: TopicMapping) -> dict[str, Any]:
    return {
        "bname": mapping.bname,
        "currIdMap": dict(mapping.current_ids),
        "dirty": mapping.dirty,
        "epoch": mapping.epoch,
        "scope": mapping.scope,
        "topic": mapping.topic,
        "totalQueues": mapping.total_queues,
    }


def in_zone(route: dict[str, Any], zone: str) -> dict[str, Any]:
    out = [
        group
        for group in route["brokerDatas"]
        if 0 in group["brokerAddrs"] and str(group.get("zoneName", "")).lower() != zone.lower()
    ]
    names = {group["brokerName"] for group in out}
    addresses = {address for group in out for address in group["brokerAddrs"].values()}
    return route | {
        "brokerDatas": [group for group in route["brokerDatas"] if group["brokerName"] not in names],
        "queueDatas": [queue for queue in route["queueDatas"] if queue["brokerName"] not in names],
        "filterServerTable": {a: filters for a, filters in route["filterServerTable"].items() if a not in addresses},
    }


def kv_table(table: Mapping[str, str | None]) -> bytes:
    return to_json({"table": {key: value for key, value in table.items() if value is not None}})


def to_json(value: object, *, unquoted_keys: bool = False) -> bytes:
    return _text(value, unquoted_keys=unquoted_keys).encode()


def _text(value: object, *, unquoted_keys: bool) -> str:
    if isinstance(value, dict):
        keys = {
            key: str(key) if unquoted_keys and isinstance(key, int) else json.dumps(str(key), ensure_ascii=False)
            for key in value
        }
        return (
            "{"
            + ",".join(f"{keys[key]}:{_text(item, unquoted_keys=unquoted_keys)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(_text(item, unquoted_keys=unquoted_keys) for item in value) + "]"
    if not unquoted_keys and isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return f'"{value}"'
    return json.dumps(value, ensure_ascii=False)
