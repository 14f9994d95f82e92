"""The handlers of all requests but lookups, by subject. `handlers_by_code` maps the request codes to them."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from routebook.errors import (
    BrokenPropertiesError,
    BusyError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    ProtectedPropertyError,
)
from routebook.model.broker import ORDER_TOPIC_NAMESPACE, Registration, RegistrationResult, Seat
from routebook.protocol.answer_bodies import (
    encode_cluster_info,
    encode_data_version,
    encode_kv_table,
    encode_member_group,
    encode_topic_list,
)
from routebook.protocol.body_json import read_data_version, read_queue_datas
from routebook.protocol.frame import Request, RequestCode, ResponseCode
from routebook.protocol.headers import read_boolean, read_int, read_long, write_fields
from routebook.protocol.registration_body import read_registration_in_steps
from routebook.registry.registry import Registry
from routebook.registry.sessions import SessionConnection
from routebook.remoting.permissions import Permissions
from routebook.remoting.requests import OVERLOADED, Handler, Lane, Reply, RequestContext, object_of
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
from routebook.settings.live import plan_config_update, properties_text

NO_CODE_SET: Final = "not set any response code"
"""RocketMQ's remark in the successful answer to 901."""
MAX_DATA_VERSION_BYTES: Final = 4_096
"""A data version has some 80."""


class BrokerHandlers:
    """103, 104, 322, 901, 904: the requests of brokers."""

    def __init__(self, registry: Registry, live: LiveSettings, permissions: Permissions) -> None:
        self._registry = registry
        self._live = live
        self._permissions = permissions

    async def register(self, context: RequestContext) -> Reply:
        seat = Seat(context.required("clusterName"), context.required("brokerName"), context.required_long("brokerId"))
        context.required("brokerAddr")
        result = await self._registry.register(
            seat,
            _significant_parts(context.request),
            lambda: self._read(context, seat),
            context.caller,
            connection=context.connection,
        )
        return self._registration_reply(result)

    async def _wait_for_decoding(self, context: RequestContext, seat: Seat) -> None:
        """Every peer can make this worker decode, so that is limited. A registration that has to wait, or is refused
        for the limit, counts as a heartbeat.
        """
        address, has_time_left = context.required("brokerAddr"), context.costs.decoding.has_any(time.monotonic())
        must_wait = context.turn.would_wait(Lane.CHANGES) or self._registry.long_work.is_busy or not has_time_left
        if must_wait and self._registry.is_own_instance(context.connection, seat.cluster, address):
            await self._registry.heartbeat_address(seat.cluster, address, context.caller)
        if not has_time_left:
            percent = self._live.current.max_decoding_percent_per_address
            raise BusyError(
                f"The registrations of this address took more time to decode than {percent} % of a processor "
                "(max_decoding_percent_per_address).",
                advice="Send it again later.",
            )
        if not await context.turn.move_to(Lane.CHANGES):
            raise BusyError(OVERLOADED)

    async def _read(self, context: RequestContext, seat: Seat) -> Registration:
        await self._wait_for_decoding(context, seat)
        request, ext, settings = context.request, context.request.ext, self._live.current
        body = await self._registry.long_work.run(
            read_registration_in_steps(
                request.body,
                version=request.version,
                now_ms=_now_ms(),
                compressed=read_boolean(ext, "compressed"),
                body_crc32=read_int(ext, "bodyCrc32", 0),
                max_inflated_bytes=settings.max_inflated_bytes or settings.max_frame_bytes,
                max_inflation_ratio=settings.max_inflation_ratio,
                max_topics=settings.max_topics_per_broker,
            ),
            charge=context.costs.decoding.charge,
        )
        context.turn.keep()
        return Registration(
            cluster=seat.cluster,
            broker=seat.broker,
            broker_id=seat.broker_id,
            address=context.required("brokerAddr"),
            ha_address=context.text("haServerAddr") or "",
            zone=context.text("__ZONE_NAME"),
            timeout_ms=read_long(ext, "heartbeatTimeoutMillis", None),
            acting_master=read_boolean(ext, "enableActingMaster") if context.text("enableActingMaster") else None,
            data_version=body.data_version,
            topics=body.topics,
            table_keys=body.table_keys,
            mappings=body.mappings,
            filters=body.filters,
        )

    def _registration_reply(self, result: RegistrationResult) -> Reply:
        ext = write_fields(
            {"haServerAddr": result.master_ha_address or None, "masterAddr": result.master_address or None}
        )
        order_topics = None
        if self._live.current.return_order_topic_config_to_broker:
            order_topics = self._registry.replica.view.kv.get(ORDER_TOPIC_NAMESPACE)
        return Reply(ext=ext, body=b"" if order_topics is None else encode_kv_table(order_topics))

    async def unregister(self, context: RequestContext) -> Reply | None:
        """Answered when it is queued. The next request of the connection waits until it has taken effect."""
        taken_effect = self._registry.queue_unregistration(
            context.text("clusterName") or "",
            context.text("brokerName") or "",
            read_long(context.request.ext, "brokerId", 0),
            context.text("brokerAddr") or "",
            context.caller,
            connection=context.connection,
            protects_others=self._permissions.protects_seats(context),
        )
        if taken_effect is None:
            capacity = self._live.current.unregister_broker_queue_capacity
            full = f"{capacity} unregistrations wait already (unregister_broker_queue_capacity)"
            self._registry.audit.refused(context.caller, what=object_of(context.request), reason=full)
            return Reply(ResponseCode.SYSTEM_ERROR, remark=full)
        context.answer_now(Reply())
        await asyncio.wait([taken_effect])
        if not taken_effect.cancelled() and isinstance(error := taken_effect.exception(), ForbiddenError):
            self._registry.audit.refused(context.caller, what=object_of(context.request), reason=error.message)
        return None

    async def query_data_version(self, context: RequestContext) -> Reply:
        cluster, address = context.required("clusterName"), context.required("brokerAddr")
        version = read_data_version(context.body_within(MAX_DATA_VERSION_BYTES), now_ms=_now_ms())
        changed, stored = await self._registry.query_data_version(
            cluster, address, version, context.caller, carrier=self._carrier(context)
        )
        body = b"" if stored is None else encode_data_version(stored)
        return Reply(ext=write_fields({"changed": changed}), body=body)

    async def heartbeat(self, context: RequestContext) -> Reply:
        cluster, address = context.required("clusterName"), context.required("brokerAddr")
        await self._registry.heartbeat_address(cluster, address, context.caller, carrier=self._carrier(context))
        return Reply()

    def _carrier(self, context: RequestContext) -> SessionConnection | None:
        return context.connection if self._permissions.protects_seats(context) else None

    async def member_group(self, context: RequestContext) -> Reply:
        cluster, broker = context.text("clusterName"), context.text("brokerName")
        group = build_member_group(self._registry.view, cluster or "", broker or "")
        body = encode_member_group(broker, cluster, group.addresses)
        return Reply(remark=NO_CODE_SET, body=body)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _significant_parts(request: Request) -> list[bytes]:
    """Everything in a registration that decides what it does: the peer's version, the header fields and the body."""
    parts = [b"%d" % request.version]
    for name, value in sorted((request.ext or {}).items()):
        parts += (name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass"))
    return [*parts, request.body]


DISABLED: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="disable")


class ListHandlers:
    """106, 206, 224, 304, 311 to 313: the whole table, or lists of names. RocketMQ does not check here whether a broker
    is alive, so neither do these.

    Encoded answers are kept until the table changes. Each broker since 5.0 asks for the cluster table every five
    seconds, so for a thousand brokers the encoding would be more work than everything else.
    """

    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live
        self._cache: dict[Callable[[Table], TopicList | ClusterInfo], tuple[int, bytes]] = {}

    async def cluster_info(self, _context: RequestContext) -> Reply:
        return self._cached(build_cluster_info)

    async def all_topics(self, _context: RequestContext) -> Reply:
        return self._cached(list_topics) if self._live.current.enable_all_topic_list else DISABLED

    async def topics_of_cluster(self, context: RequestContext) -> Reply:
        cluster = context.text("cluster") or ""
        if not self._live.current.enable_topic_list:
            return DISABLED
        return Reply(body=_encode(list_topics_of_cluster(self._registry.view, cluster)))

    async def system_topics(self, _context: RequestContext) -> Reply:
        """The only list that no setting turns off."""
        return self._cached(list_system_topics)

    async def unit_topics(self, _context: RequestContext) -> Reply:
        return self._if_enabled(list_unit_topics)

    async def unit_subscription_topics(self, _context: RequestContext) -> Reply:
        return self._if_enabled(list_unit_subscription_topics)

    async def unit_subscription_topics_without_unit(self, _context: RequestContext) -> Reply:
        return self._if_enabled(list_unit_subscription_topics_without_unit)

    def _if_enabled(self, build: Callable[[Table], TopicList]) -> Reply:
        return self._cached(build) if self._live.current.enable_topic_list else DISABLED

    def _cached(self, build: Callable[[Table], TopicList | ClusterInfo]) -> Reply:
        table, view_number = self._registry.view, self._registry.replica.view_number
        cached = self._cache.get(build)
        if cached is None or cached[0] != view_number:
            cached = self._cache[build] = (view_number, _encode(build(table)))
        return Reply(body=cached[1])


def _encode(answer: TopicList | ClusterInfo) -> bytes:
    if isinstance(answer, ClusterInfo):
        return encode_cluster_info(answer.groups, answer.clusters)
    return encode_topic_list(answer.topics, answer.broker_address)


MAX_ROUTE_BYTES: Final = 32_768
"""A route with 300 brokers. A broker sends a route with itself alone."""


class TopicHandlers:
    """205, 216, 217, 327: topics are changed by operators and brokers."""

    def __init__(self, registry: Registry, permissions: Permissions) -> None:
        self._registry = registry
        self._permissions = permissions

    async def delete(self, context: RequestContext) -> Reply:
        """A success even without a topic to delete, or without a name."""
        with suppress(InvalidInputError):
            await self._registry.delete_topic(
                context.text("topic") or "", context.text("clusterName") or None, context.caller
            )
        return Reply()

    async def register(self, context: RequestContext) -> Reply:
        """A success even if the rules let nothing, or only a part, be stored."""
        queues = dict(read_queue_datas(context.body_within(MAX_ROUTE_BYTES)))
        topic = context.text("topic")
        self._permissions.check_topic_registration(context, topic or "", set(queues))
        if queues and topic is not None:
            with suppress(NotFoundError):
                await self._registry.register_topic(topic, queues, context.caller)
        return Reply()

    async def wipe_write_permission(self, context: RequestContext) -> Reply:
        return Reply(ext=write_fields({"wipeTopicCount": await self._set_permission(context, writable=False)}))

    async def add_write_permission(self, context: RequestContext) -> Reply:
        return Reply(ext=write_fields({"addTopicCount": await self._set_permission(context, writable=True)}))

    async def _set_permission(self, context: RequestContext, *, writable: bool) -> int:
        """The number of topics that have an entry of the broker, changed or not."""
        try:
            result = await self._registry.set_write_permission(
                context.text("brokerName") or "", writable, context.caller
            )
        except InvalidInputError:
            return 0
        return result.count


NAMELESS: Final = Reply(ResponseCode.SYSTEM_ERROR, remark="namespace or key is null")


class KeyValueHandlers:
    """100, 101, 102, 219: key-values by namespace."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def put(self, context: RequestContext) -> Reply:
        namespace, key, value = context.text("namespace"), context.text("key"), context.text("value")
        if namespace is None or key is None:
            self._registry.audit.refused(context.caller, what=object_of(context.request), reason=NAMELESS.remark or "")
            return NAMELESS
        await self._registry.put_kv(namespace, key, value or "", context.caller)
        if value is None:
            # RocketMQ stores null: the namespace exists then, and the key does not.
            await self._registry.delete_kv(namespace, key, context.caller)
        return Reply()

    async def get(self, context: RequestContext) -> Reply:
        namespace, key = context.text("namespace"), context.text("key")
        try:
            value = self._registry.kv_value(namespace or "", key or "")
        except NotFoundError:
            remark = f"No config item, Namespace: {_or_null(namespace)} Key: {_or_null(key)}"
            return Reply(ResponseCode.QUERY_NOT_FOUND, ext={}, remark=remark)
        return Reply(ext=write_fields({"value": value}))

    async def delete(self, context: RequestContext) -> Reply:
        """A success even if there was nothing to delete."""
        with suppress(NotFoundError, InvalidInputError):
            await self._registry.delete_kv(context.text("namespace") or "", context.text("key") or "", context.caller)
        return Reply()

    async def list(self, context: RequestContext) -> Reply:
        namespace = context.text("namespace")
        try:
            table = self._registry.kv(namespace or "")
        except NotFoundError:
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {_or_null(namespace)}")
        return Reply(body=encode_kv_table(table))


def _or_null(name: str | None) -> str:
    return "null" if name is None else name


BLACK_LISTED: Final = "Can not update config in black list."
NOT_ALLOWED: Final = "The setting remoting_config_updates does not allow changes over this port."
MAX_TEXT_BYTES: Final = 65_536
UNREADABLE: Final = "string2Properties error"


class ConfigurationHandlers:
    """318, 319: the configuration as a properties file."""

    def __init__(self, registry: Registry, live: LiveSettings) -> None:
        self._registry = registry
        self._live = live

    async def show(self, _context: RequestContext) -> Reply:
        return Reply(body=properties_text(self._live).encode())

    async def update(self, context: RequestContext) -> Reply:
        """A caller without an identity needs a setting that allows changes. Only settings that take effect at once can
        be changed.
        """
        if not self._live.current.remoting_config_updates and context.caller.identity is None:
            self._registry.audit.refused(context.caller, reason=NOT_ALLOWED)
            return Reply(ResponseCode.NO_PERMISSION, remark=NOT_ALLOWED)
        try:
            changes = plan_config_update(_text_of(context.body_within(MAX_TEXT_BYTES)), self._live)
        except BrokenPropertiesError:
            self._registry.audit.refused(context.caller, reason=UNREADABLE)
            return Reply(ResponseCode.SYSTEM_ERROR, remark=UNREADABLE)
        except ProtectedPropertyError:
            self._registry.audit.refused(context.caller, reason=BLACK_LISTED)
            return Reply(ResponseCode.NO_PERMISSION, remark=BLACK_LISTED)
        for key, value in changes.items():
            await self._registry.change_setting(key, value, context.caller)
        sources = {key: self._live.source_above_run_time(key) for key in changes}
        if fixed := [f"{key} (the {source} takes precedence)" for key, source in sources.items() if source]:
            # Not a success: mqadmin shows remarks of errors only. Other workers may not have this flag or variable.
            return Reply(
                ResponseCode.SYSTEM_ERROR, remark=f"Stored, but without effect on this worker: {', '.join(fixed)}."
            )
        return Reply()


def _text_of(body: bytes) -> str:
    """As in Java, bytes that are not UTF-8 become the replacement character."""
    return body.decode("utf-8", "replace")


def handlers_by_code(registry: Registry, live: LiveSettings, permissions: Permissions) -> Mapping[int, Handler]:
    """All requests but the lookup (105), which does not go through the queue."""
    brokers = BrokerHandlers(registry, live, permissions)
    lists = ListHandlers(registry, live)
    topics = TopicHandlers(registry, permissions)
    key_values = KeyValueHandlers(registry)
    configuration = ConfigurationHandlers(registry, live)

    def writing(handle: Handler) -> Handler:
        """Refuses at once while the store does not answer. Otherwise each call would wait for its timeout, and with the
        few runners there are, hundreds of brokers would wait for a minute.
        """

        async def handle_if_store_answers(context: RequestContext) -> Reply | None:
            registry.check_store_answers()
            return await handle(context)

        return handle_if_store_answers

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
