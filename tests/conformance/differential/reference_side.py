"""The reference model of `tests/reference` as a name server, for a comparison with Apache's without a store.

The product's readers parse the bodies, so that they are compared with Apache's as well. The answers are built here.
"""

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from routebook.model.broker import SYNC_MEMBER_TOPIC_PREFIX, QueueData, Registration
from routebook.protocol.body_json import BodyError, ChecksumError, read_data_version, read_queue_datas
from routebook.settings.files import parse_properties
from tests.conformance.differential.frames import Answer, Request
from tests.conformance.differential.profiles import AT_START, ORDER_NAMESPACE
from tests.conformance.differential.reference_bodies import (
    broker_data,
    in_zone,
    kv_table,
    mapping_data,
    queue_data,
    to_json,
)
from tests.protocol.bodies.reading import read_registration_body
from tests.reference.registry import Group, ReferenceRegistry, Unregistration

BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

Ext = Mapping[str, str]


class JavaError(Exception):
    """The answer is code 1 with the text of a Java exception."""


class ReferenceSide:
    name = "the reference model"

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}
        self._opaques = itertools.count(1)
        self._connections: dict[tuple[str, str], tuple[str, str]] = {}
        self.registry = ReferenceRegistry(now_ms)
        self.kv: dict[str, dict[str, str | None]] = {}
        self.config = dict(AT_START)

    def send(self, connection: str, request: Request) -> int:
        opaque = next(self._opaques)
        answer = self.answer(request)
        if not request.is_answered:
            return opaque
        if request.code == 103 and answer.code == 0:
            ext = _texts(request)
            self._connections[ext["clusterName"], ext["brokerAddr"]] = connection, ext["brokerName"]
        self._answers[opaque] = answer
        return opaque

    def receive(self, connection: str, opaque: int) -> Answer:
        return self._answers.pop(opaque)

    def drop(self, connection: str) -> None:
        """Removes the brokers that registered last over this connection, if their own cluster created the group."""
        for (cluster, address), (used, broker) in list(self._connections.items()):
            group = self.registry.groups.get(broker)
            is_seated = group is not None and group.cluster == cluster and address in group.addresses.values()
            if used == connection and is_seated and (cluster, address) in self.registry.instances:
                self.registry.unregister([Unregistration(cluster, address, broker)])

    def wait_for_last_write(self) -> None:
        return None

    def disconnect(self) -> None:
        return None

    def unexpected_answers(self) -> list[Answer]:
        return list(self._answers.values())

    def answer(self, request: Request) -> Answer:
        handle = _HANDLERS.get(request.code)
        if handle is None:
            return Answer(3, remark=f" request type {request.code} not supported")
        try:
            return handle(self, request, _texts(request))
        except (JavaError, BodyError) as error:
            return Answer(1, remark=getattr(error, "remark", str(error)))

    def is_enabled(self, key: str) -> bool:
        return self.config[key] == "true"

    # Brokers

    def register(self, request: Request, ext: Ext) -> Answer:
        try:
            body = read_registration_body(
                request.body,
                version=request.version,
                now_ms=now_ms(),
                compressed=ext.get("compressed", "").lower() == "true",
                body_crc32=_long(ext.get("bodyCrc32", "")) or 0,
            )
        except ChecksumError as error:
            return Answer(1, remark=error.remark, ext={})
        broker_id = _long(ext.get("brokerId", ""))
        if broker_id is None:
            raise JavaError("no id")
        acting = ext.get("enableActingMaster")
        registration = Registration(
            cluster=ext["clusterName"],
            broker=ext["brokerName"],
            broker_id=broker_id,
            address=ext["brokerAddr"],
            ha_address=ext.get("haServerAddr", ""),
            zone=ext.get("__ZONE_NAME"),
            timeout_ms=None,
            acting_master=None if acting is None else acting.lower() == "true",
            data_version=body.data_version,
            topics=body.topics,
            table_keys=body.table_keys,
            mappings=body.mappings,
            filters=body.filters,
        )
        self.registry.delete_topic_with_broker_registration = self.is_enabled("deleteTopicWithBrokerRegistration")
        result = self.registry.register(registration, "incarnation")
        if result.outcome == "refused":
            return Answer(1, remark="register broker failed", ext={})
        answered = {}
        if result.master_address:
            answered = {"haServerAddr": result.master_ha_address, "masterAddr": result.master_address}
        table = self.kv.get(ORDER_NAMESPACE)
        has_body = table is not None and self.is_enabled("returnOrderTopicConfigToBroker")
        return Answer(0, ext=answered, body=kv_table(table or {}) if has_body else b"")

    def unregister(self, request: Request, ext: Ext) -> Answer:
        if {"clusterName", "brokerAddr", "brokerName"} <= ext.keys():
            self.registry.unregister([Unregistration(ext["clusterName"], ext["brokerAddr"], ext["brokerName"])])
        return Answer(0)

    def query_version(self, request: Request, ext: Ext) -> Answer:
        if not {"clusterName", "brokerAddr"} <= ext.keys():
            raise JavaError("null")
        asked = read_data_version(request.body, now_ms=now_ms())
        entry = self.registry.instances.get((ext["clusterName"], ext["brokerAddr"]))
        known = entry.data_version if entry else None
        changed = asked is None or known != asked
        body = b""
        if known:
            numbers = {"counter": known.counter, "stateVersion": known.state_version, "timestamp": known.timestamp}
            body = to_json(numbers, unquoted_keys=True)
        return Answer(0, ext={"changed": str(changed).lower()}, body=body)

    def heartbeat(self, request: Request, ext: Ext) -> Answer:
        if not {"clusterName", "brokerAddr"} <= ext.keys():
            raise JavaError("null")
        return Answer(0)

    def member_group(self, request: Request, ext: Ext) -> Answer:
        broker = ext.get("brokerName")
        group = self.registry.groups.get(broker) if broker is not None else None
        members: dict[str, Any] = {"brokerAddrs": group.addresses if group else {}}
        if broker is not None:
            members["brokerName"] = broker
        if "clusterName" in ext:
            members["cluster"] = ext["clusterName"]
        body = to_json({"brokerMemberGroup": members}, unquoted_keys=True)
        return Answer(0, remark="not set any response code", body=body)

    def permission(self, request: Request, ext: Ext) -> Answer:
        count = self.registry.set_write_permission(ext.get("brokerName", ""), writable=request.code == 327)
        return Answer(0, ext={"addTopicCount" if request.code == 327 else "wipeTopicCount": str(count)})

    # Topics

    def route(self, request: Request, ext: Ext) -> Answer:
        if self.is_enabled("needWaitForService") and self.config["waitSecondsForService"] != "0":
            return Answer(1, remark="name server not ready")
        topic = ext.get("topic")
        route = self.route_data(topic) if topic is not None else None
        if route is None:
            return Answer(17, remark=NO_ROUTE.format(topic if topic is not None else "null"))
        assert topic is not None
        if self.is_enabled("orderMessageEnable"):
            conf = self.kv.get(ORDER_NAMESPACE, {}).get(topic)
            if conf is not None:
                route["orderTopicConf"] = conf
        standard = request.version >= 401 or ext.get("acceptStandardJsonOnly", "").lower() == "true"
        zone = ext.get("__ZONE_NAME", "")
        if ext.get("__ZONE_MODE", "").lower() == "true" and zone.strip():
            return Answer(0, body=to_json(in_zone(route, zone), unquoted_keys=True))
        return Answer(0, body=to_json(route, unquoted_keys=not standard))

    def route_data(self, topic: str) -> dict[str, Any] | None:
        entries = self.registry.topics.get(topic)
        groups = {name: self.registry.groups[name] for name in entries or {} if name in self.registry.groups}
        if not entries or not groups:
            return None
        has_acting_masters = self.is_enabled("supportActingMaster") and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        route: dict[str, Any] = {
            "brokerDatas": [
                broker_data(
                    name, group, _with_acting_master(group, entries[name]) if has_acting_masters else group.addresses
                )
                for name, group in groups.items()
            ],
            "filterServerTable": {
                address: list(self.registry.filters[group.cluster, address])
                for group in groups.values()
                for address in group.addresses.values()
                if (group.cluster, address) in self.registry.filters
            },
            "queueDatas": [queue_data(name, queues) for name, queues in entries.items()],
        }
        if mappings := self.registry.mappings.get(topic):
            route["topicQueueMappingByBroker"] = {host: mapping_data(item) for host, item in mappings.items()}
        return route

    def register_topic(self, request: Request, ext: Ext) -> Answer:
        queues = read_queue_datas(request.body)
        if queues and "topic" in ext:
            self.registry.register_topic(ext["topic"], dict(queues))
        return Answer(0)

    def delete_topic(self, request: Request, ext: Ext) -> Answer:
        if "topic" in ext:
            self.registry.delete_topic(ext["topic"], ext.get("clusterName") or None)
        return Answer(0)

    # Lists

    def cluster_info(self, request: Request, ext: Ext) -> Answer:
        groups = self.registry.groups.items()
        info = {
            "brokerAddrTable": {name: broker_data(name, group, group.addresses) for name, group in groups},
            "clusterAddrTable": {cluster: sorted(names) for cluster, names in self.registry.clusters.items()},
        }
        return Answer(0, body=to_json(info, unquoted_keys=True))

    def listing(self, request: Request, ext: Ext) -> Answer:
        switch = {206: "enableAllTopicList", 304: None}.get(request.code, "enableTopicList")
        if switch and not self.is_enabled(switch):
            return Answer(1, remark="disable")
        if request.code == 304:
            # A set: a name in two clusters is listed once.
            names = list({*self.registry.clusters}.union(*self.registry.clusters.values()))
            address = [a for group in self.registry.groups.values() for a in group.addresses.values()][:1]
            return Answer(0, body=to_json({"topicList": names} | ({"brokerAddr": address[0]} if address else {})))
        return Answer(
            0,
            body=to_json(
                {"topicList": [topic for topic in self.registry.topics if self._is_listed(topic, request.code, ext)]}
            ),
        )

    def _is_listed(self, topic: str, code: int, ext: Ext) -> bool:
        entries = self.registry.topics[topic]
        if code == 206:
            return True
        if code == 224:
            return bool(entries.keys() & self.registry.clusters.get(ext.get("cluster", ""), set()))
        flags = next(iter(entries.values())).flags
        return {311: bool(flags & 1), 312: bool(flags & 2), 313: flags & 3 == 2}[code]

    # Key-values and configuration

    def put_kv(self, request: Request, ext: Ext) -> Answer:
        if "namespace" not in ext or "key" not in ext:
            return Answer(1, remark="namespace or key is null")
        self.kv.setdefault(ext["namespace"], {})[ext["key"]] = ext.get("value")
        return Answer(0)

    def get_kv(self, request: Request, ext: Ext) -> Answer:
        namespace, key = ext.get("namespace", "null"), ext.get("key", "null")
        value = self.kv.get(namespace, {}).get(key)
        if value is None:
            return Answer(22, remark=f"No config item, Namespace: {namespace} Key: {key}", ext={})
        return Answer(0, ext={"value": value})

    def delete_kv(self, request: Request, ext: Ext) -> Answer:
        self.kv.get(ext.get("namespace", ""), {}).pop(ext.get("key", ""), None)
        return Answer(0)

    def list_kv(self, request: Request, ext: Ext) -> Answer:
        namespace = ext.get("namespace", "null")
        if namespace not in self.kv:
            return Answer(22, remark=f"No config item, Namespace: {namespace}")
        return Answer(0, body=kv_table(self.kv[namespace]))

    def update_config(self, request: Request, ext: Ext) -> Answer:
        try:
            values = parse_properties(request.body.decode())
        except Exception:
            return Answer(1, remark="string2Properties error")
        if any(key in BLACK_LIST for key in values):
            return Answer(16, remark="Can not update config in black list.")
        for key, value in values.items():
            if key == "waitSecondsForService":
                self.config[key] = value if value.isdigit() else self.config[key]
            elif key in self.config:
                self.config[key] = "true" if value.lower() == "true" else "false"
        return Answer(0)

    def get_config(self, request: Request, ext: Ext) -> Answer:
        return Answer(0, body="".join(f"{key}={value}\n" for key, value in sorted(self.config.items())).encode())


def now_ms() -> int:
    return int(time.time() * 1000)


def _long(text: str) -> int | None:
    """Parses a number as Java does: without blanks, with an optional sign, at most 64 bits."""
    number = int(text) if re.fullmatch("[+-]?[0-9]+", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _texts(request: Request) -> Ext:
    """The fields as strings, as a name server reads them. A binary header has no empty ones."""
    fields = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (request.ext or {}).items()
        if value is not None
    }
    return {key: value for key, value in fields.items() if value or request.header == "json"}


def _with_acting_master(group: Group, entry: QueueData) -> dict[int, str]:
    if not group.addresses or 0 in group.addresses or not group.acting_master or entry.is_writable:
        return group.addresses
    smallest = min(group.addresses)
    rest = {i: address for i, address in group.addresses.items() if i != smallest}
    return {0: group.addresses[smallest], **rest}


_HANDLERS: dict[int, Callable[[ReferenceSide, Request, Ext], Answer]] = {
    100: ReferenceSide.put_kv,
    101: ReferenceSide.get_kv,
    102: ReferenceSide.delete_kv,
    103: ReferenceSide.register,
    104: ReferenceSide.unregister,
    105: ReferenceSide.route,
    106: ReferenceSide.cluster_info,
    205: ReferenceSide.permission,
    206: ReferenceSide.listing,
    216: ReferenceSide.delete_topic,
    217: ReferenceSide.register_topic,
    219: ReferenceSide.list_kv,
    224: ReferenceSide.listing,
    304: ReferenceSide.listing,
    311: ReferenceSide.listing,
    312: ReferenceSide.listing,
    313: ReferenceSide.listing,
    318: ReferenceSide.update_config,
    319: ReferenceSide.get_config,
    322: ReferenceSide.query_version,
    327: ReferenceSide.permission,
    901: ReferenceSide.member_group,
    904: ReferenceSide.heartbeat,
}
