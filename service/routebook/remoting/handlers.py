"""103, 104, 322, 901, 904: what brokers say of themselves, and ask of their group.

106, 206, 224, 304, 311 to 313: the whole table, or names out of it. None of these looks at liveness.

205, 216, 217, 327: operators and brokers change topics.

100, 101, 102, 219: key-values by namespace.

318, 319: the configuration, as a properties file.

Which handler answers which code.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from routebook.errors import BrokenPropertiesError, InvalidInputError, NotFoundError, ProtectedPropertyError
from routebook.model.broker import Registration, RegistrationResult, Seat
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.observability.logs import PeerLog
from routebook.protocol.answer_bodies import (
    encode_cluster_info,
    encode_data_version,
    encode_kv_table,
    encode_member_group,
    encode_topic_list,
)
from routebook.protocol.command import Request, RequestCode, ResponseCode
from routebook.protocol.headers import read_boolean, read_int, read_long, write_fields
from routebook.protocol.registration_body import read_registration_in_steps
from routebook.protocol.request_bodies import read_data_version, read_queue_datas
from routebook.registry.registry import Registry
from routebook.remoting.reply import Asking, Handler, Reply
from routebook.replica.routes import (
    ClusterInfo,
    TopicList,
    build_cluster_info,
    build_member_group,
    list_system_topics,
    list_topics,
    list_topics_of_cluster,
    list_unit_subscription_topics,
    list_unit_subscription_topics_without_unit,
    list_unit_topics,
)
from routebook.replica.table import Table
from routebook.settings import LiveSettings
from routebook.settings.config_text import plan_config_update, properties_text

NO_CODE_SET: Final = "not set any response code"
"""What the reference says beside the success of 901."""
MAX_DATA_VERSION_BYTES: Final = 4_096
"""A version has some 80."""
LONGEST_TIMEOUT_MS: Final = 10 * 365 * 86_400_000
"""A broker may name any; beyond ten years it would only test the arithmetic of the store."""


class BrokerHandlers:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live

    async def register(self, asking: Asking) -> Reply:
        seat = Seat(asking.required("clusterName"), asking.required("brokerName"), asking.required_long("brokerId"))
        asking.required("brokerAddr")
        result = await self._registry.register(
            seat,
            _what_was_sent(asking.request),
            lambda: self._read(asking, seat),
            asking.caller,
            connection=asking.connection,
        )
        return self._registered(result)

    async def _read(self, asking: Asking, seat: Seat) -> Registration:
        request, ext = asking.request, asking.request.ext
        body = await self._registry.long_work.run(
            read_registration_in_steps(
                request.body,
                version=request.version,
                now_ms=_now_ms(),
                compressed=read_boolean(ext, "compressed"),
                body_crc32=read_int(ext, "bodyCrc32", 0),
                max_inflated_bytes=self._live.current.max_frame_bytes,
            )
        )
        timeout_ms = read_long(ext, "heartbeatTimeoutMillis", None)
        return Registration(
            cluster=seat.cluster,
            broker=seat.broker,
            broker_id=seat.broker_id,
            address=asking.required("brokerAddr"),
            ha_address=asking.text("haServerAddr") or "",
            zone=asking.text("__ZONE_NAME"),
            timeout_ms=None if timeout_ms is None else min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS),
            acting_master=read_boolean(ext, "enableActingMaster") if asking.text("enableActingMaster") else None,
            data_version=body.data_version,
            topics=body.topics,
            table_keys=body.table_keys,
            mappings=body.mappings,
            filters=body.filters,
        )

    def _registered(self, result: RegistrationResult) -> Reply:
        ext = write_fields(
            {"haServerAddr": result.master_ha_address or None, "masterAddr": result.master_address or None}
        )
        ordered = None
        if self._live.current.return_order_topic_config_to_broker:
            ordered = self._registry.view.kv.get(ORDER_TOPIC_NAMESPACE)
        return Reply(ext=ext, body=b"" if ordered is None else encode_kv_table(ordered))

    async def unregister(self, asking: Asking) -> Reply | None:
        """Answered when it is queued; what this connection says next waits until it has taken effect."""
        taken_effect = self._registry.depart(
            asking.text("clusterName") or "",
            asking.text("brokerName") or "",
            read_long(asking.request.ext, "brokerId", 0),
            asking.text("brokerAddr") or "",
            asking.caller,
            connection=asking.connection,
        )
        if taken_effect is None:
            return Reply(ResponseCode.SYSTEM_ERROR)
        asking.answer_now(Reply())
        await asyncio.wait([taken_effect])
        return None

    async def query_data_version(self, asking: Asking) -> Reply:
        cluster, address = asking.required("clusterName"), asking.required("brokerAddr")
        asked = read_data_version(asking.body_within(MAX_DATA_VERSION_BYTES), now_ms=_now_ms())
        changed, stored = await self._registry.query_data_version(cluster, address, asked, asking.caller)
        body = b"" if stored is None else encode_data_version(stored)
        return Reply(ext=write_fields({"changed": changed}), body=body)

    async def heartbeat(self, asking: Asking) -> Reply:
        await self._registry.heartbeat_address(
            asking.required("clusterName"), asking.required("brokerAddr"), asking.caller
        )
        return Reply()

    async def member_group(self, asking: Asking) -> Reply:
        cluster, broker = asking.text("clusterName"), asking.text("brokerName")
        group = build_member_group(self._registry.view, cluster or "", broker or "")
        body = encode_member_group(broker, cluster, group.addresses)
        return Reply(remark=NO_CODE_SET, body=body)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _what_was_sent(request: Request) -> list[bytes]:
    """Everything in a registration that decides what it does: the peer's version, the header fields and the body."""
    parts = [b"%d" % request.version]
    for name, value in sorted((request.ext or {}).items()):
        parts += (name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass"))
    return [*parts, request.body]


DISABLED: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="disable")


class ListHandlers:
    """Bodies are kept while the table is the same: every broker from 5.0 on asks for the cluster table each five
    seconds, which for a thousand of them would be more work than all else.
    """

    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live
        self._kept: dict[Callable[[Table], TopicList | ClusterInfo], tuple[int, bytes]] = {}

    async def cluster_info(self, _asking: Asking) -> Reply:
        return self._told(build_cluster_info)

    async def all_topics(self, _asking: Asking) -> Reply:
        return self._told(list_topics) if self._live.current.enable_all_topic_list else DISABLED

    async def topics_of_cluster(self, asking: Asking) -> Reply:
        cluster = asking.text("cluster") or ""
        if not self._live.current.enable_topic_list:
            return DISABLED
        return Reply(body=_encode(list_topics_of_cluster(self._registry.view, cluster)))

    async def system_topics(self, _asking: Asking) -> Reply:
        """The one listing without a switch."""
        return self._told(list_system_topics)

    async def unit_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_topics)

    async def unit_subscription_topics(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics)

    async def unit_subscription_topics_without_unit(self, _asking: Asking) -> Reply:
        return self._switched(list_unit_subscription_topics_without_unit)

    def _switched(self, listing: Callable[[Table], TopicList]) -> Reply:
        return self._told(listing) if self._live.current.enable_topic_list else DISABLED

    def _told(self, look: Callable[[Table], TopicList | ClusterInfo]) -> Reply:
        table, view_number = self._registry.view, self._registry.replica.view_number
        kept = self._kept.get(look)
        if kept is None or kept[0] != view_number:
            kept = self._kept[look] = (view_number, _encode(look(table)))
        return Reply(body=kept[1])


def _encode(found: TopicList | ClusterInfo) -> bytes:
    if isinstance(found, ClusterInfo):
        return encode_cluster_info(found.groups, found.clusters)
    return encode_topic_list(found.topics, found.broker_address)


MAX_ROUTE_BYTES: Final = 32_768
"""Of a route of 300 brokers; a broker sends one of itself alone."""


class TopicHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def delete(self, asking: Asking) -> Reply:
        """Success also where there was nothing to delete, or no name."""
        with suppress(InvalidInputError):
            await self._registry.delete_topic(
                asking.text("topic") or "", asking.text("clusterName") or None, asking.caller
            )
        return Reply()

    async def register(self, asking: Asking) -> Reply:
        """Success also where the rules put nothing, or not all."""
        queues = dict(read_queue_datas(asking.body_within(MAX_ROUTE_BYTES)))
        topic = asking.text("topic")
        if queues and topic is not None:
            with suppress(NotFoundError):
                await self._registry.register_topic(topic, queues, asking.caller)
        return Reply()

    async def wipe_write_permission(self, asking: Asking) -> Reply:
        return Reply(ext=write_fields({"wipeTopicCount": await self._set_permission(asking, writable=False)}))

    async def add_write_permission(self, asking: Asking) -> Reply:
        return Reply(ext=write_fields({"addTopicCount": await self._set_permission(asking, writable=True)}))

    async def _set_permission(self, asking: Asking, *, writable: bool) -> int:
        """How many topics name the broker, changed or not."""
        try:
            touched = await self._registry.set_write_permission(
                asking.text("brokerName") or "", writable, asking.caller
            )
        except InvalidInputError:
            return 0
        return touched.count


NAMELESS: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="namespace or key is null")


class KeyValueHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def put(self, asking: Asking) -> Reply:
        namespace, key, value = asking.text("namespace"), asking.text("key"), asking.text("value")
        if namespace is None or key is None:
            return NAMELESS
        await self._registry.put_kv(namespace, key, value or "", asking.caller)
        if value is None:
            # The reference stores null then: the namespace is there, the key reads as absent.
            await self._registry.delete_kv(namespace, key, asking.caller)
        return Reply()

    async def get(self, asking: Asking) -> Reply:
        namespace, key = asking.text("namespace"), asking.text("key")
        try:
            value = self._registry.kv_value(namespace or "", key or "")
        except NotFoundError:
            remark = f"No config item, Namespace: {_said(namespace)} Key: {_said(key)}"
            return Reply(ResponseCode.QUERY_NOT_FOUND, ext={}, remark=remark)
        return Reply(ext=write_fields({"value": value}))

    async def delete(self, asking: Asking) -> Reply:
        """Success also where nothing was there."""
        with suppress(NotFoundError, InvalidInputError):
            await self._registry.delete_kv(asking.text("namespace") or "", asking.text("key") or "", asking.caller)
        return Reply()

    async def list(self, asking: Asking) -> Reply:
        namespace = asking.text("namespace")
        try:
            table = self._registry.kv(namespace or "")
        except NotFoundError:
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {_said(namespace)}")
        return Reply(body=encode_kv_table(table))


def _said(name: str | None) -> str:
    return "null" if name is None else name


audit = logging.getLogger("routebook.audit")
refusals = PeerLog(audit)

BLACK_LISTED: Final = "Can not update config in black list."
NOT_ALLOWED: Final = "Configuration is not changed over this port here: remoting_config_updates is off."
MAX_TEXT_BYTES: Final = 65_536
UNREADABLE: Final = "string2Properties error"


class ConfigurationHandlers:
    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live

    async def show(self, _asking: Asking) -> Reply:
        return Reply(body=properties_text(self._live).encode())

    async def update(self, asking: Asking) -> Reply:
        """Nobody on this port says who he is: only where a setting allows it, and only what takes effect at once."""
        if not self._live.current.remoting_config_updates:
            refusals.log(logging.WARNING, "configuration change from %s: refused", asking.caller.source)
            return Reply(ResponseCode.NO_PERMISSION, remark=NOT_ALLOWED)
        try:
            changes = plan_config_update(_text_of(asking.body_within(MAX_TEXT_BYTES)), self._live)
        except BrokenPropertiesError:
            return Reply(ResponseCode.SYSTEM_ERROR, remark=UNREADABLE)
        except ProtectedPropertyError:
            refusals.log(
                logging.WARNING, "configuration change from %s: refused, a key is black-listed", asking.caller.source
            )
            return Reply(ResponseCode.NO_PERMISSION, remark=BLACK_LISTED)
        for key, value in changes.items():
            await self._registry.change_setting(key, value, asking.caller)
        audit.info("configuration change from %s: %s", asking.caller.source, changes)
        return Reply()


def _text_of(body: bytes) -> str:
    """The reference reads it as Java does: what is not UTF-8 becomes a replacement letter."""
    return body.decode("utf-8", "replace")


def handlers_by_code(registry: Registry, live: LiveSettings) -> Mapping[int, Handler]:
    """All but the lookup (105), which is answered without a turn in the queue."""
    brokers = BrokerHandlers(registry, live)
    lists = ListHandlers(registry, live)
    topics = TopicHandlers(registry)
    key_values = KeyValueHandlers(registry)
    configuration = ConfigurationHandlers(registry, live)

    def writing(handle: Handler) -> Handler:
        """Each call to a store that is silent takes its whole time; with as many runners as there are, hundreds of
        brokers would wait for a minute to be refused.
        """

        async def handle_if_the_store_answers(asking: Asking) -> Reply | None:
            registry.check_store_answers()
            return await handle(asking)

        return handle_if_the_store_answers

    return {
        RequestCode.PUT_KV_CONFIG: writing(key_values.put),
        RequestCode.GET_KV_CONFIG: key_values.get,
        RequestCode.DELETE_KV_CONFIG: writing(key_values.delete),
        RequestCode.REGISTER_BROKER: brokers.register,
        RequestCode.UNREGISTER_BROKER: writing(brokers.unregister),
        RequestCode.GET_BROKER_CLUSTER_INFO: lists.cluster_info,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: writing(topics.wipe_write_permission),
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lists.all_topics,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: writing(topics.delete),
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: writing(topics.register),
        RequestCode.GET_KVLIST_BY_NAMESPACE: key_values.list,
        RequestCode.GET_TOPICS_BY_CLUSTER: lists.topics_of_cluster,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: lists.system_topics,
        RequestCode.GET_UNIT_TOPIC_LIST: lists.unit_topics,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lists.unit_subscription_topics,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lists.unit_subscription_topics_without_unit,
        RequestCode.UPDATE_NAMESRV_CONFIG: configuration.update,
        RequestCode.GET_NAMESRV_CONFIG: configuration.show,
        RequestCode.QUERY_DATA_VERSION: writing(brokers.query_data_version),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: writing(topics.add_write_permission),
        RequestCode.GET_BROKER_MEMBER_GROUP: brokers.member_group,
        RequestCode.BROKER_HEARTBEAT: writing(brokers.heartbeat),
    }
