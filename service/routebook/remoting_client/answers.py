"""Parses the response bodies of name servers of any release, in both JSON dialects. An absent field has its default.

Raises BodyError for a body that no name server sends.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from routebook.model.broker import BrokerGroup, QueueData, TopicMapping, TopicRoute
from routebook.protocol.body_json import (
    ANY_JSON,
    FiltersBody,
    JsonShapeError,
    MappingBody,
    convert,
    filters_of,
    flag,
    int64,
    mapping_of,
    queue_data_of,
    read_json,
    text,
)

_NO_QUEUES: Final = QueueData(0, 0, 0, 0)
_FLAGS_BEFORE_4_9: Final = "topicSynFlag"
_MAX_LENIENT_BYTES: Final = 1024 * 1024
"""More than a name server allows, since no lookup waits for the slow parser here."""


def read_route(body: bytes) -> TopicRoute:
    """The response to 105."""
    fields = _object("route", _json(body))
    queues = [_queue_data(one) for one in _list("queueDatas", fields.get("queueDatas"))]
    filters = _optional_object("filterServerTable", fields.get("filterServerTable"))
    mappings = _optional_object("topicQueueMappingByBroker", fields.get("topicQueueMappingByBroker"))
    return TopicRoute(
        queues=dict(sorted(queues)),
        groups=tuple(sorted((_group(one) for one in _list("brokerDatas", fields.get("brokerDatas"))), key=_name_of)),
        filters={address: filters_of(convert(found, FiltersBody)) or () for address, found in sorted(filters.items())},
        mappings={bname: _mapping(found) for bname, found in sorted(mappings.items())},
        order_conf=text("orderTopicConf", fields.get("orderTopicConf")) or None,
    )


def read_cluster_info(body: bytes) -> tuple[dict[str, BrokerGroup], dict[str, frozenset[str]]]:
    """The response to 106: groups by name, and the broker names listed under each cluster."""
    fields = _object("cluster info", _json(body))
    groups = _optional_object("brokerAddrTable", fields.get("brokerAddrTable"))
    clusters = _optional_object("clusterAddrTable", fields.get("clusterAddrTable"))
    return (
        {name: _group({"brokerName": name, **_object("brokerAddrTable", found)}) for name, found in groups.items()},
        {cluster: _texts("clusterAddrTable", names) for cluster, names in clusters.items()},
    )


def read_member_group(body: bytes) -> Mapping[int, str]:
    """The response to 901: addresses by broker id."""
    fields = _object("member group", _json(body))
    group = _optional_object("brokerMemberGroup", fields.get("brokerMemberGroup"))
    return _addresses(group.get("brokerAddrs"))


def read_topic_list(body: bytes) -> frozenset[str]:
    """The responses to 206, 224, 304 and 311 to 313."""
    return _texts("topicList", _optional_object("topic list", _json(body)).get("topicList"))


def read_kv_table(body: bytes) -> dict[str, str]:
    """The response to 219."""
    table = _optional_object("table", _optional_object("key-value table", _json(body)).get("table"))
    return {key: content for key, value in sorted(table.items()) if (content := text(key, value)) is not None}


def read_properties(body: bytes) -> dict[str, str]:
    """The response to 319: one `key=value` per line, without escapes."""
    lines = body.decode("utf-8", "replace").splitlines()
    return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}


def _name_of(group: BrokerGroup) -> str:
    return group.name


def _group(value: object) -> BrokerGroup:
    fields = _object("brokerDatas", value)
    flags = (fields.get("brokerName"), fields.get("cluster"), fields.get("zoneName"), fields.get("enableActingMaster"))
    addresses = _optional_object("brokerAddrs", fields.get("brokerAddrs"))
    try:
        return _shared_group(*flags, tuple(addresses.items()))
    except TypeError:  # Not hashable: a list or an object in place of a text. The conversion reports it.
        return _group_of(*flags, addresses)


@lru_cache(maxsize=4096, typed=True)
def _shared_group(
    name: object, cluster: object, zone: object, acting: object, addresses: tuple[tuple[str, object], ...]
) -> BrokerGroup:
    """Cached, because the routes of all topics of a group repeat it."""
    return _group_of(name, cluster, zone, acting, dict(addresses))


def _group_of(
    name: object, cluster: object, zone: object, acting: object, addresses: Mapping[str, object]
) -> BrokerGroup:
    return BrokerGroup(
        name=text("brokerName", name) or "",
        cluster=text("cluster", cluster) or "",
        zone=text("zoneName", zone) or None,
        acting_master=flag(acting),
        addresses=_addresses(addresses),
    )


def _addresses(value: object) -> dict[int, str]:
    found = _optional_object("brokerAddrs", value)
    return {
        int64("key of brokerAddrs", broker_id, absent=0): text("brokerAddrs", address) or ""
        for broker_id, address in found.items()
    }


def _queue_data(value: object) -> tuple[str, QueueData]:
    fields = _object("queueDatas", value)
    flags = fields.get("topicSysFlag", fields.get(_FLAGS_BEFORE_4_9))
    numbers = (fields.get("readQueueNums"), fields.get("writeQueueNums"), fields.get("perm"), flags)
    try:
        queue = _shared_queue(*numbers)
    except TypeError:
        queue = _queue_of(*numbers)
    return text("brokerName", fields.get("brokerName")) or "", queue


@lru_cache(maxsize=4096, typed=True)
def _shared_queue(read: object, write: object, perm: object, flags: object) -> QueueData:
    """Cached, because the million entries of a fleet have only some dozens of different values."""
    return _queue_of(read, write, perm, flags)


def _queue_of(read: object, write: object, perm: object, flags: object) -> QueueData:
    return queue_data_of(read, write, perm, flags, defaults=_NO_QUEUES)


def _mapping(value: object) -> TopicMapping:
    return mapping_of(convert(value, MappingBody), topic="")


def _json(body: bytes) -> object:
    return read_json(body, ANY_JSON, max_lenient_bytes=_MAX_LENIENT_BYTES)


def _object(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise JsonShapeError(field, value, "an object")
    return value


def _optional_object(field: str, value: object) -> dict[str, object]:
    """Returns an empty object for null and for the empty text, which RocketMQ's JSON library reads as null."""
    return {} if value is None or value == "" else _object(field, value)


def _list(field: str, value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise JsonShapeError(field, value, "a list")
    return value


def _texts(field: str, value: object) -> frozenset[str]:
    return frozenset(content for item in _list(field, value) if (content := text(field, item)) is not None)
