"""The bodies of answers, as a name server 5.5.0 writes them: keys in alphabetical order, no null values, no blanks.

RocketMQ has two dialects of JSON, which differ in numbers alone. Where its order is that of a hash table, names and
numbers are sorted here, so that equal tables give equal bytes.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from routebook.model.broker import BrokerGroup, DataVersion, QueueData, TopicMapping, TopicRoute

FIRST_VERSION_WITH_STANDARD_JSON: Final = 401
"""4.9.4."""

_LARGEST_EXACT: Final = 2**53 - 1
"""JSON readers that use doubles would round larger numbers."""

quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
"""A text as 5.5.0 writes it in both dialects: raw UTF-8, a plain `/`, `\\u001f` for control characters."""


class Dialect(Enum):
    PLAIN = "plain"
    """Integer keys without quotes. A body with such a key is not standard JSON."""
    STANDARD = "standard"

    def number_key(self, number: int) -> str:
        return str(number) if self is Dialect.PLAIN else f'"{number}"'

    def number(self, number: int) -> str:
        if self is Dialect.PLAIN or -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
            return str(number)
        return f'"{number}"'


def route_dialect(version: int, *, accept_standard_json_only: bool) -> Dialect:
    """The dialect of a route, by the header of the request. Routes filtered by zone are always plain."""
    if accept_standard_json_only or version >= FIRST_VERSION_WITH_STANDARD_JSON:
        return Dialect.STANDARD
    return Dialect.PLAIN


def encode_route(route: TopicRoute, dialect: Dialect) -> bytes:
    """GET_ROUTEINFO_BY_TOPIC (105)."""
    mappings = {bname: _mapping(mapping, dialect) for bname, mapping in route.mappings.items()}
    return _to_bytes(
        _object(
            brokerDatas=_array(_broker_data(group, dialect) for group in route.groups),
            filterServerTable=_map({address: _texts(found) for address, found in route.filters.items()}),
            orderTopicConf=None if route.order_conf is None else quoted(route.order_conf),
            queueDatas=_array(_queue_data(broker, queue) for broker, queue in route.queues.items()),
            topicQueueMappingByBroker=_map(mappings) if mappings else None,
        )
    )


def encode_cluster_info(
    groups: Iterable[BrokerGroup], clusters: Mapping[str, Iterable[str]], dialect: Dialect = Dialect.PLAIN
) -> bytes:
    """GET_BROKER_CLUSTER_INFO (106): the true ids, and also groups without addresses."""
    return _to_bytes(
        _object(
            brokerAddrTable=_map({group.name: _broker_data(group, dialect) for group in groups}),
            clusterAddrTable=_map({cluster: _texts(names) for cluster, names in clusters.items()}),
        )
    )


def encode_member_group(
    broker: str | None, cluster: str | None, addresses: Mapping[int, str], dialect: Dialect = Dialect.PLAIN
) -> bytes:
    """GET_BROKER_MEMBER_GROUP (901): both names are copied from the request, which may lack them."""
    group = _object(
        brokerAddrs=_addresses(addresses, dialect),
        brokerName=None if broker is None else quoted(broker),
        cluster=None if cluster is None else quoted(cluster),
    )
    return _to_bytes(_object(brokerMemberGroup=group))


def encode_topic_list(topics: Iterable[str], broker_address: str | None = None) -> bytes:
    """206, 224, 304, 311 to 313."""
    address = None if broker_address is None else quoted(broker_address)
    return _to_bytes(_object(brokerAddr=address, topicList=_texts(topics)))


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """219, and the order topics in the answer to a registration (103)."""
    return _to_bytes(_object(table=_map({key: quoted(table[key]) for key in sorted(table)})))


def encode_data_version(data_version: DataVersion) -> bytes:
    """322. In the plain dialect, so large numbers are not quoted."""
    return _to_bytes(
        _object(
            counter=str(data_version.counter),
            stateVersion=str(data_version.state_version),
            timestamp=str(data_version.timestamp),
        )
    )


def _broker_data(group: BrokerGroup, dialect: Dialect) -> str:
    return _object(
        brokerAddrs=_addresses(group.addresses, dialect),
        brokerName=quoted(group.name),
        cluster=quoted(group.cluster),
        enableActingMaster=_flag(group.acting_master),
        zoneName=None if group.zone is None else quoted(group.zone),
    )


def _addresses(addresses: Mapping[int, str], dialect: Dialect) -> str:
    return _numbered({broker_id: quoted(address) for broker_id, address in addresses.items()}, dialect)


def _queue_data(broker: str, queue: QueueData) -> str:
    return _object(
        brokerName=quoted(broker),
        perm=str(queue.perm),
        readQueueNums=str(queue.read_queues),
        topicSysFlag=str(queue.flags),
        writeQueueNums=str(queue.write_queues),
    )


def _mapping(mapping: TopicMapping, dialect: Dialect) -> str:
    return _object(
        bname=quoted(mapping.bname),
        currIdMap=_numbered({logical: str(real) for logical, real in mapping.current_ids}, dialect),
        dirty=_flag(mapping.dirty),
        epoch=dialect.number(mapping.epoch),
        scope=quoted(mapping.scope),
        topic=quoted(mapping.topic),
        totalQueues=str(mapping.total_queues),
    )


def _object(**members: str | None) -> str:
    """Members are written in the given order, which has to be alphabetical."""
    return "{" + ",".join([f'"{name}":{value}' for name, value in members.items() if value is not None]) + "}"


def _map(entries: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{quoted(key)}:{value}" for key, value in entries.items()]) + "}"


def _numbered(entries: Mapping[int, str], dialect: Dialect) -> str:
    return "{" + ",".join([f"{dialect.number_key(key)}:{entries[key]}" for key in sorted(entries)]) + "}"


def _array(values: Iterable[str]) -> str:
    return "[" + ",".join(values) + "]"


def _texts(values: Iterable[str]) -> str:
    return _array(quoted(value) for value in values)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _to_bytes(body: str) -> bytes:
    """Halves of surrogate pairs become question marks, as in Java."""
    return body.encode("utf-8", "replace")
