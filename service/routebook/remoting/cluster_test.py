"""`clusterTest`: a test environment that holds some topics itself and has all others from another name server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from routebook.client.remoting_client import RemotingClient
from routebook.errors import NotFoundError, PeerUnavailableError, RoutebookError
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.protocol.answer_bodies import Dialect, encode_route
from routebook.protocol.command import Request, RequestCode, ResponseCode
from routebook.protocol.headers import read_text
from routebook.registry.reading import Reading
from routebook.remoting.lookups import Lookups, not_found
from routebook.remoting.reply import Reply, reply_to_error
from routebook.settings import LiveSettings
from routebook.settings.kinds import split_list

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000


class ClusterTestLookups(Lookups):
    """No warm-up, always the order configuration, always the plain dialect: as in the reference's 4.9."""

    def __init__(self, registry: Reading, live: LiveSettings) -> None:
        super().__init__(registry, live)
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
        ordered = self._registry.view.kv.get(ORDER_TOPIC_NAMESPACE, {}).get(topic)
        return encode_route(replace(route, order_conf=ordered), Dialect.PLAIN)

    def find_kept(self, example: Request) -> Callable[[str], bytes | None] | None:
        """Nothing is kept: its answers have another form."""
        del example
        return None

    async def find_elsewhere(self, request: Request) -> bytes | Reply:
        topic = read_text(request.ext, "topic") or ""
        try:
            response = await self._ask({"topic": topic})
        except PeerUnavailableError as error:
            self.not_ready += 1
            return reply_to_error(error)
        if response is None:
            self.not_found += 1
            return not_found(topic)
        self.found += 1
        return response

    async def _ask(self, ext: dict[str, str]) -> bytes | None:
        """Of the first that knows, or says that there is none; its connection is kept. Whatever else one answers (busy,
        not ready, going away) leaves the matter open.
        """
        for address in self._upstream:
            try:
                client = await self._connected(address)
                response = await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext, timeout_ms=TIMEOUT_MS)
            except PeerUnavailableError as error:
                _log.warning("A name server behind the cluster test does not answer. %s", error)
                continue
            if response.code == ResponseCode.SUCCESS:
                return response.body
            if response.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            _log.warning("%s, behind the cluster test, answers code %d: %r", address, response.code, response.remark)
        raise PeerUnavailableError(";".join(self._upstream), "none of cluster_test_upstream answers")

    async def _connected(self, address: str) -> RemotingClient:
        async with self._connecting:
            client = self._clients.get(address)
            if client is None or not client.is_open:
                timeout_ms = self._live.current.connect_timeout_ms
                client = self._clients[address] = await RemotingClient.connect(address, timeout_ms=timeout_ms)
            return client

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
