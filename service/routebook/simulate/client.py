"""How RocketMQ's own clients and brokers use name servers.

`ServerConnection` is the connection to one name server: opened when it is needed, kept open, closed when a response is
late, and replaced once after GO_AWAY. `SimulatedClient` looks up the routes of its topics, one after the other, and
uses the same name server as long as the connection is open.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from routebook.errors import PeerUnavailableError
from routebook.protocol.frame import Ext, RequestCode, Response, ResponseCode
from routebook.remoting_client import RemotingClient
from routebook.simulate.records import Counts, Journal

CONNECT_MS: Final = 3000


class LateResponseError(PeerUnavailableError):
    """The connection is open, but the response did not arrive in time."""


class ServerConnection:
    def __init__(
        self, address: str, *, follows_go_away: bool = True, on_go_away: Callable[[], None] | None = None
    ) -> None:
        self.address = address
        self._follows_go_away = follows_go_away
        self._on_go_away = on_go_away
        self._client: RemotingClient | None = None
        self._connecting = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._client is not None and self._client.is_open

    @property
    def was_lost(self) -> bool:
        """It was open and has been closed, but not by this side."""
        return self._client is not None and not self._client.is_open

    async def connect(self) -> RemotingClient:
        async with self._connecting:
            if self._client is not None and self._client.is_open:
                return self._client
            await self._drop()
            self._client = await RemotingClient.connect(self.address, timeout_ms=CONNECT_MS)
            return self._client

    async def request(self, code: int, ext: Ext, body: bytes = b"", *, timeout_ms: int) -> Response:
        """Raises PeerUnavailableError without a connection, and LateResponseError when there is no response in time."""
        response = await self._request_once(code, ext, body, timeout_ms)
        if response.code != ResponseCode.GO_AWAY:
            return response
        if self._on_go_away:
            self._on_go_away()
        if not self._follows_go_away:
            return response
        await self._drop()
        return await self._request_once(code, ext, body, timeout_ms)

    async def close(self) -> None:
        async with self._connecting:
            await self._drop()

    async def _request_once(self, code: int, ext: Ext, body: bytes, timeout_ms: int) -> Response:
        client = await self.connect()
        try:
            return await client.request(code, ext=ext, body=body, timeout_ms=timeout_ms)
        except PeerUnavailableError as error:
            if not client.is_open:
                raise
            # RocketMQ's `clientCloseSocketIfTimeout` does the same.
            await client.close()
            raise LateResponseError(error.address, error.reason) from error

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


LOOKUP_MS: Final = 3_000
"""Timeout of request 105 (RocketMQ's `mqClientApiTimeout`)."""


class SimulatedClient:
    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        name_servers: Sequence[str],
        *,
        rng: random.Random,
        journal: Journal,
        counts: Counts,
        follows_go_away: bool,
    ) -> None:
        self.name = name
        self._topics = topics
        self._addresses = rng.sample(name_servers, len(name_servers))
        self._journal = journal
        self._counts = counts
        self._follows_go_away = follows_go_away
        self._server_number = 0
        self._connection = self._connection_to(self._addresses[0])
        self._used = False
        self._missing: set[str] = set()
        """Topics that did not exist at the last lookup: recorded once."""

    async def run(self, first_after_s: float, poll_s: float) -> None:
        due = time.monotonic() + first_after_s
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += poll_s
            for topic in self._topics:
                await self._look_up(topic)

    async def close(self) -> None:
        await self._connection.close()

    def _connection_to(self, address: str) -> ServerConnection:
        return ServerConnection(address, follows_go_away=self._follows_go_away, on_go_away=self._count_retry)

    def _count_retry(self) -> None:
        self._counts.retries += self._follows_go_away

    async def _look_up(self, topic: str) -> None:
        """Does not retry: after a failure, the next lookup uses the next name server."""
        if self._used and not self._connection.is_open:
            await self._connection.close()
            self._server_number += 1
            self._counts.switches += 1
            self._connection = self._connection_to(self._addresses[self._server_number % len(self._addresses)])
        self._used = True
        counts, start = self._counts, time.perf_counter()
        counts.lookups += 1
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            response = await self._connection.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_ms=LOOKUP_MS)
        except PeerUnavailableError as error:
            self._failed(topic, "late" if isinstance(error, LateResponseError) else "unreachable", error.reason)
            return
        ms = (time.perf_counter() - start) * 1000
        if response.code == ResponseCode.SUCCESS and response.body:
            counts.found += 1
            if topic in self._missing:
                self._missing.remove(topic)
                self._journal.record("found-again", client=self.name, server=self._connection.address, topic=topic)
        elif response.code == ResponseCode.TOPIC_NOT_EXIST:
            counts.not_found += 1
            if topic not in self._missing:
                self._missing.add(topic)
                self._journal.record("not-found", client=self.name, server=self._connection.address, topic=topic)
        else:
            self._failed(topic, str(response.code), response.remark or "no body")
            return
        counts.latencies.add(ms)

    def _failed(self, topic: str, how: str, reason: str) -> None:
        self._counts.failures[how] += 1
        self._journal.record(
            "lookup-failed", client=self.name, server=self._connection.address, topic=topic, how=how, reason=reason
        )
