"""Requests to a name server of any implementation and release, with typed results.

A request that the server does not know or does not allow gives `Declined`; only a missing or unreadable response is an
error. Name servers before 5.0 do not answer unknown codes at all, so requests that they may not know have a timeout of
their own.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from routebook.errors import PeerUnavailableError
from routebook.model.broker import BrokerGroup, TopicRoute
from routebook.protocol.body_json import BodyError
from routebook.protocol.frame import Ext, RequestCode, Response, ResponseCode
from routebook.remoting_client import answers
from routebook.remoting_client.connection import TIMEOUT_MS, RemotingClient

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
        return self._required(106, await self._request(RequestCode.GET_BROKER_CLUSTER_INFO, answers.read_cluster_info))

    async def topics(self) -> frozenset[str] | Declined:
        return await self._request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, answers.read_topic_list)

    async def topics_of_cluster(self, cluster: str) -> frozenset[str] | Declined:
        return await self._request(RequestCode.GET_TOPICS_BY_CLUSTER, answers.read_topic_list, {"cluster": cluster})

    async def listing(self, code: RequestCode) -> frozenset[str] | Declined:
        """Requests 304 and 311 to 313."""
        return await self._request(code, answers.read_topic_list)

    async def route(self, topic: str) -> TopicRoute | None:
        """Returns None when the server has no such topic."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        result = await self._request(code, answers.read_route, {"topic": topic, "acceptStandardJsonOnly": "true"})
        if isinstance(result, Declined) and result.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return self._required(code, result)

    async def key_values(self, namespace: str) -> Mapping[str, str] | Declined:
        """Returns an empty table for a namespace that does not exist."""
        result = await self._request(
            RequestCode.GET_KVLIST_BY_NAMESPACE, answers.read_kv_table, {"namespace": namespace}
        )
        if isinstance(result, Declined) and result.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        return result

    async def settings(self) -> Mapping[str, str] | Declined:
        return await self._request(RequestCode.GET_NAMESRV_CONFIG, answers.read_properties)

    async def member_group(self, cluster: str, broker: str, *, timeout_ms: int) -> Mapping[int, str] | Declined:
        """Request 901. A server that does not respond does not know the code."""
        ext = {"clusterName": cluster, "brokerName": broker}
        try:
            return await self._request(
                RequestCode.GET_BROKER_MEMBER_GROUP, answers.read_member_group, ext, timeout_ms=timeout_ms
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
