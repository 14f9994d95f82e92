"""Clients that repeat a lookup over one address, each behaving like a certain kind of real client."""

import asyncio
import json
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import httpx

from routebook.errors import PeerUnavailableError
from routebook.model.broker import MASTER_ID
from routebook.protocol.body_json import BodyError
from routebook.protocol.frame import RequestCode, ResponseCode
from routebook.remoting_client import read_route
from routebook.simulate.client import ServerConnection
from tests.balancing.results import ClientResult, KindResult
from tests.protocol.plain_frames import framed

PAUSE_S = 0.02
TIMEOUT_S = 3.0
V4_9_7 = 407


class Route:
    """The expected answer of every lookup, in any JSON dialect: all brokers, each with its address and queues."""

    def __init__(self, topic: str, masters: Mapping[str, str]) -> None:
        self.topic = topic
        self._masters = dict(masters)
        self._verified: set[bytes] = set()
        """Bodies that were correct. Few different ones occur, and parsing one costs more than a lookup."""

    def difference(self, body: bytes) -> str:
        """How this body differs from the expected route; empty if it does not."""
        if body in self._verified:
            return ""
        try:
            route = read_route(body)
        except BodyError as error:
            return f"not a route: {body[:200]!r}: {error.message}"
        masters = {group.name: group.addresses.get(MASTER_ID) for group in route.groups}
        if masters != self._masters or route.queues.keys() != masters.keys():
            return f"masters {masters}, queues on {[*route.queues]}"
        self._verified.add(body)
        return ""


class Client(Protocol):
    async def look_up(self) -> None: ...
    async def close(self) -> None: ...


class GoAwayClient:
    """Like RocketMQ's clients since 5.3.2: after GO_AWAY it reconnects and repeats the request, else it tries once."""

    def __init__(self, address: str, route: Route, result: ClientResult) -> None:
        self._line = ServerConnection(address, on_go_away=self._count_move)
        self._route = route
        self._result = result

    async def look_up(self) -> None:
        self._result.reconnected += self._line.was_lost
        ext = {"topic": self._route.topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self._line.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_ms=int(TIMEOUT_S * 1000))
        except PeerUnavailableError as error:
            self._result.failed.append(str(error))
            return
        is_route = answer.code == ResponseCode.SUCCESS
        self._result.count_answer(
            self._route.difference(answer.body) if is_route else f"code {answer.code}: {answer.remark}"
        )

    async def close(self) -> None:
        await self._line.close()

    def _count_move(self) -> None:
        self._result.moved += 1


class LegacyClient:
    """Like RocketMQ's clients of 4.9, which do not know GO_AWAY: if the connection ends during a request, it asks once
    more, after a pause. A process that is killed closes its sockets one after the other, and the kernel may still
    accept a connection that follows within microseconds, and reset it: such a second attempt would prove nothing.
    """

    def __init__(self, address: str, route: Route, result: ClientResult) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._route = route
        self._result = result
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def look_up(self) -> None:
        if self._streams and self._streams[0].at_eof():
            self._result.reconnected += 1
            await self.close()
        for attempt in (1, 2):
            try:
                code, body = await asyncio.wait_for(self._ask(), TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                if attempt == 2:
                    self._result.failed.append(repr(error))
                else:
                    await asyncio.sleep(PAUSE_S)
                continue
            self._result.retried += attempt - 1
            self._result.count_answer(self._route.difference(body) if code == ResponseCode.SUCCESS else f"code {code}")
            return

    async def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None

    async def _ask(self) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        ext = {"topic": self._route.topic}
        header = {"code": 105, "flag": 0, "language": "JAVA", "opaque": 1, "version": V4_9_7, "extFields": ext}
        writer.write(framed(json.dumps(header).encode()))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        end = 4 + int.from_bytes(frame[1:4], "big")
        return json.loads(frame[4:end])["code"], frame[end:]


class OneShotClient:
    """Like a command that is started for one lookup: uses a new connection each time, and follows GO_AWAY."""

    def __init__(self, address: str, route: Route, result: ClientResult) -> None:
        self._inner = GoAwayClient(address, route, result)

    async def look_up(self) -> None:
        await self._inner.look_up()
        await self._inner.close()

    async def close(self) -> None:
        await self._inner.close()


class HttpClient:
    """Keeps its connections and retries nothing, because HAProxy retries."""

    def __init__(self, url: str, route: Route, result: ClientResult) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._route = route
        self._result = result

    async def look_up(self) -> None:
        try:
            answer = await self._client.get(f"/v1/routes/{self._route.topic}")
        except httpx.HTTPError as error:
            self._result.failed.append(repr(error))
            return
        if answer.status_code != httpx.codes.OK:
            self._result.failed.append(f"{answer.status_code} {answer.text}")
            return
        self._result.count_answer(self._route.difference(answer.content))

    async def close(self) -> None:
        await self._client.aclose()


class ClientPool:
    """Many clients of one kind that look up until the end of an `async with` block."""

    def __init__(self, kind: str, count: int, make: Callable[[ClientResult], Client]) -> None:
        self.result = KindResult(kind, [ClientResult() for _ in range(count)])
        self._clients = [make(result) for result in self.result.clients]
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._started_at = 0.0

    async def __aenter__(self) -> "ClientPool":
        self._started_at = time.perf_counter()
        self._tasks = [
            asyncio.create_task(self._ask(client, result))
            for client, result in zip(self._clients, self.result.clients, strict=True)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for the lookups in flight, and counts them."""
        self._stopping = True
        self.result.seconds = time.perf_counter() - self._started_at
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.close()

    async def _ask(self, client: Client, result: ClientResult) -> None:
        while not self._stopping:
            start = time.perf_counter()
            await client.look_up()
            result.longest_ms = max(result.longest_ms, (time.perf_counter() - start) * 1000)
            await asyncio.sleep(PAUSE_S)
