"""The remoting protocol from the client's side: requests to name servers of any implementation and release.

`RemotingClient` is a connection to a peer: it sends requests and returns their responses. Every call ends with its
response, at its deadline, or when the connection is lost, whichever comes first. A response that arrives after its
deadline is dropped. The client does not act on codes: 1500 (go away) is returned like any other.

`NameServer` gives typed results. A request that the server does not know or does not allow gives `Declined`; only a
missing or unreadable response is an error. Name servers before 5.0 do not answer unknown codes at all, so requests that
they may not know have a timeout of their own.

The bodies of responses are parsed as name servers of any release write them, in both JSON dialects. An absent field has
its default; a body that no name server sends is a BodyError.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from routebook.errors import PeerUnavailableError
from routebook.model.broker import BrokerGroup, QueueData, TopicMapping, TopicRoute
from routebook.model.names import check_address
from routebook.protocol.body_json import (
    ANY_JSON,
    BodyError,
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
from routebook.protocol.connection import Connection
from routebook.protocol.frame import Ext, FrameLimits, PeerProtocolError, Request, RequestCode, Response, ResponseCode

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
"""The timeout of RocketMQ's own clients for requests to a name server."""
CLOSING_MS: Final = 1000
"""How long `close` waits for one-way requests that are still in the buffer, before it aborts the connection."""

_LIMITS: Final = FrameLimits(max_frame_bytes=64 * 1024 * 1024)
"""Above the 16 MiB that servers accept, since a reference server does not limit its own responses."""


class RemotingClient:
    """Calls may run concurrently. Once the connection is closed or broken, the client cannot be used again."""

    def __init__(self, address: str, protocol: "_ClientProtocol") -> None:
        self.address = address
        self._protocol = protocol

    @classmethod
    async def connect(cls, address: str, *, timeout_ms: int = TIMEOUT_MS, tls: ssl.SSLContext | None = None) -> Self:
        """Raises PeerUnavailableError when there is no connection (with `tls`, no encrypted one) within the time."""
        host, _, port = check_address("address", address).rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await loop.create_connection(
                    lambda: _ClientProtocol(address), host.strip("[]"), int(port), ssl=tls
                )
        except TimeoutError as error:
            raise _unavailable(address, f"no connection within {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # also ssl.SSLError, and a host that cannot be a name
            raise _unavailable(address, str(error) or type(error).__name__) from error
        return cls(address, protocol)

    @property
    def is_open(self) -> bool:
        return self._protocol.failure is None

    async def request(
        self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> Response:
        """Returns the response, whatever its code."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._protocol.request(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"no answer to request {code} within {timeout_ms} ms") from error

    async def send_oneway(
        self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Sends a one-way request. Returns when it is in the connection's buffer; whether it arrives is not known."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._protocol.send_oneway(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"request {code} not sent within {timeout_ms} ms") from error

    async def close(self) -> None:
        """Sends the buffered one-way requests first. Calls that wait for a response get PeerUnavailableError."""
        await self._protocol.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _ClientProtocol(asyncio.Protocol):
    """Connects a `protocol.connection.Connection`, which does no I/O, to a transport."""

    def __init__(self, address: str) -> None:
        self.failure: PeerUnavailableError | None = None
        """Why the connection cannot be used any more."""
        self._address = address
        self._connection = Connection(_LIMITS)
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def request(self, code: int, ext: Ext | None, body: bytes) -> Response:
        transport = await self._ready()
        opaque, sent = self._connection.request(code, ext=ext, body=body)
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[opaque] = response
        transport.write(sent)
        try:
            return await response
        finally:
            self._pending.pop(opaque, None)
            self._connection.abandon_request(opaque)

    async def send_oneway(self, code: int, ext: Ext | None, body: bytes) -> None:
        (await self._ready()).write(self._connection.oneway_request(code, ext=ext, body=body))

    async def close(self) -> None:
        self._fail("closed by us")
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSING_MS / 1000):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self._lost.wait()

    async def _ready(self) -> asyncio.Transport:
        """Waits while the peer does not read what was sent earlier."""
        await self._writable.wait()
        if self.failure is not None or self._transport is None:
            raise self._new_failure()
        return self._transport

    def _new_failure(self) -> PeerUnavailableError:
        """A new exception each time: one that is raised several times would collect all their tracebacks."""
        reason = self.failure.reason if self.failure else "not connected"
        return _unavailable(self._address, reason)

    def _fail(self, reason: str) -> None:
        """Keeps the first reason; later ones follow from it."""
        if self.failure is not None:
            return
        self.failure = _unavailable(self._address, reason)
        self._writable.set()
        pending, self._pending = self._pending, {}
        for response in pending.values():
            if not response.done():
                response.set_exception(self._new_failure())

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive(data):
            match event:
                case Response():
                    response = self._pending.pop(event.opaque, None)
                    if response is not None and not response.done():
                        response.set_result(event)
                case PeerProtocolError():
                    self._fail(f"it violated the protocol: {event.message}")
                    if self._transport is not None:
                        self._transport.abort()
                case Request():
                    _log.debug("Request %d from %s ignored: a client answers no requests.", event.code, self._address)

    def eof_received(self) -> bool:
        self._fail("it closed the connection")
        return False  # asyncio closes our side too

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection broke: {exc}" if exc else "it closed the connection")
        self._lost.set()

    def pause_writing(self) -> None:
        if self.failure is None:
            self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _unavailable(address: str, reason: str) -> PeerUnavailableError:
    return PeerUnavailableError(address, reason)


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


MAX_ATTEMPTS: Final = 5
"""Attempts while the server responds that it is busy (code 2)."""
BUSY_PAUSE_S: Final = 0.2

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Declined:
    """The server declined a request. `code` is None when it did not respond to it at all."""

    code: int | None
    remark: str

    def __str__(self) -> str:
        return "no answer" if self.code is None else f"code {self.code}: {self.remark.strip()}"


class NameServer:
    def __init__(self, client: RemotingClient, timeout_ms: int = TIMEOUT_MS) -> None:
        self.address = client.address
        self._client = client
        self._timeout_ms = timeout_ms

    @classmethod
    async def connect(cls, address: str, *, timeout_ms: int = TIMEOUT_MS, tls: ssl.SSLContext | None = None) -> Self:
        return cls(await RemotingClient.connect(address, timeout_ms=timeout_ms, tls=tls), timeout_ms)

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def cluster_info(self) -> tuple[dict[str, BrokerGroup], dict[str, frozenset[str]]]:
        return self._required(106, await self._request(RequestCode.GET_BROKER_CLUSTER_INFO, read_cluster_info))

    async def topics(self) -> frozenset[str] | Declined:
        return await self._request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, read_topic_list)

    async def topics_of_cluster(self, cluster: str) -> frozenset[str] | Declined:
        return await self._request(RequestCode.GET_TOPICS_BY_CLUSTER, read_topic_list, {"cluster": cluster})

    async def listing(self, code: RequestCode) -> frozenset[str] | Declined:
        """Requests 304 and 311 to 313."""
        return await self._request(code, read_topic_list)

    async def route(self, topic: str) -> TopicRoute | None:
        """Returns None when the server has no such topic."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        result = await self._request(code, read_route, {"topic": topic, "acceptStandardJsonOnly": "true"})
        if isinstance(result, Declined) and result.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return self._required(code, result)

    async def key_values(self, namespace: str) -> Mapping[str, str] | Declined:
        """Returns an empty table for a namespace that does not exist."""
        result = await self._request(RequestCode.GET_KVLIST_BY_NAMESPACE, read_kv_table, {"namespace": namespace})
        if isinstance(result, Declined) and result.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        return result

    async def settings(self) -> Mapping[str, str] | Declined:
        return await self._request(RequestCode.GET_NAMESRV_CONFIG, read_properties)

    async def member_group(self, cluster: str, broker: str, *, timeout_ms: int) -> Mapping[int, str] | Declined:
        """Request 901. A server that does not respond does not know the code."""
        ext = {"clusterName": cluster, "brokerName": broker}
        try:
            return await self._request(
                RequestCode.GET_BROKER_MEMBER_GROUP, read_member_group, ext, timeout_ms=timeout_ms
            )
        except PeerUnavailableError:
            if not self._client.is_open:
                raise
            return Declined(None, "")

    async def _request(
        self, code: RequestCode, read: Callable[[bytes], Value], ext: Ext | None = None, *, timeout_ms: int = 0
    ) -> Value | Declined:
        response = await self._response(code, ext, timeout_ms or self._timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            return Declined(response.code, response.remark or "")
        try:
            return read(response.body)
        except BodyError as error:
            reason = f"its response to request {int(code)} cannot be read: {error.message}"
            raise PeerUnavailableError(self.address, reason) from error

    async def _response(self, code: int, ext: Ext | None, timeout_ms: int) -> Response:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            response = await self._client.request(code, ext=ext, timeout_ms=timeout_ms)
            if response.code == ResponseCode.GO_AWAY:
                raise PeerUnavailableError(self.address, "it is shutting down (code 1500)")
            if response.code != ResponseCode.SYSTEM_BUSY:
                return response
            await asyncio.sleep(BUSY_PAUSE_S * attempt)
        raise PeerUnavailableError(self.address, f"it is too busy (code 2), after {MAX_ATTEMPTS} attempts")

    def _required(self, code: int, result: Value | Declined) -> Value:
        """The result of a request without which nothing can be compared."""
        if isinstance(result, Declined):
            raise PeerUnavailableError(self.address, f"it declines request {int(code)} ({result})")
        return result
