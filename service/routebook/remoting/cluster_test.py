"""`clusterTest`: a test environment that has some topics itself and looks all others up at another name server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from routebook.errors import NotFoundError, PeerUnavailableError, RoutebookError
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.observability.metrics import Metrics
from routebook.protocol.answer_bodies import Dialect, encode_route
from routebook.protocol.frame import Request, RequestCode, ResponseCode
from routebook.protocol.headers import read_text
from routebook.registry.reading import Reading
from routebook.remoting.lookups import CachedRoute, Lookups, not_found
from routebook.remoting.permissions import Permissions
from routebook.remoting.requests import Reply, reply_to_error
from routebook.remoting_client import RemotingClient
from routebook.settings import LiveSettings
from routebook.settings.kinds import split_list

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000


class ClusterTestLookups(Lookups):
    """As in RocketMQ 4.9: no warm-up, always with the order configuration, always in the plain dialect."""

    def __init__(
        self,
        registry: Reading,
        live: LiveSettings,
        metrics: Metrics,
        encode_success_head: Callable[[bytes, int], bytes | None],
        permissions: Permissions,
    ) -> None:
        super().__init__(registry, live, metrics, encode_success_head, permissions)
        self._upstream = split_list(live.current.cluster_test_upstream)
        self._clients: dict[str, RemotingClient] = {}
        self._connecting = asyncio.Lock()

    def find(self, request: Request) -> bytes | Reply | None:
        topic = read_text(request.ext, "topic") or ""
        try:
            route = self._registry.find_topic(topic)
        except NotFoundError:
            return None
        except RoutebookError as error:
            self.not_ready += 1
            return reply_to_error(error)
        self.found += 1
        order_configuration = self._registry.view.kv.get(ORDER_TOPIC_NAMESPACE, {}).get(topic)
        return encode_route(replace(route, order_conf=order_configuration), Dialect.PLAIN)

    def _cache_for(self, example: Request) -> CachedRoute | None:
        """The cached routes have another form."""
        del example
        return None

    async def ask_upstream(self, request: Request) -> bytes | Reply:
        topic = read_text(request.ext, "topic") or ""
        try:
            route = await self._upstream_route({"topic": topic})
        except PeerUnavailableError as error:
            self.not_ready += 1
            return reply_to_error(error)
        if route is None:
            self.not_found += 1
            return not_found(topic)
        self.found += 1
        return route

    async def _upstream_route(self, ext: dict[str, str]) -> bytes | None:
        """From the first name server that has the route, or answers that there is none. After any other answer (busy,
        not ready, going away) the next one is asked.
        """
        for address in self._upstream:
            try:
                client = await self._client(address)
                response = await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext, timeout_ms=TIMEOUT_MS)
            except PeerUnavailableError as error:
                _log.warning("A name server of cluster_test_upstream does not answer. %s", error)
                continue
            if response.code == ResponseCode.SUCCESS:
                return response.body
            if response.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            _log.warning("%s, in cluster_test_upstream, answers code %d: %r", address, response.code, response.remark)
        raise PeerUnavailableError(";".join(self._upstream), "none of cluster_test_upstream answers")

    async def _client(self, address: str) -> RemotingClient:
        async with self._connecting:
            client = self._clients.get(address)
            if client is None or not client.is_open:
                timeout_ms = self._live.current.connect_timeout_ms
                client = self._clients[address] = await RemotingClient.connect(address, timeout_ms=timeout_ms)
            return client

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
