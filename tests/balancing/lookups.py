"""Clients that look up all the time over one address, each by the manners of its kind, and what they saw."""

import asyncio
import json
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import httpx

from routebook.client.answers import read_route
from routebook.errors import PeerUnavailableError
from routebook.model.broker import MASTER_ID
from routebook.protocol.body_json import BodyError
from routebook.protocol.command import RequestCode, ResponseCode
from routebook.simulate.client import Line
from tests.balancing.seen import Seen, SeenByKind
from tests.protocol.plain_frames import framed

PAUSE_S = 0.02
TIMEOUT_S = 3.0
V4_9_7 = 407


class Route:
    """What every lookup must answer, in whichever dialect: all brokers, each with its address and its queues."""

    def __init__(self, topic: str, masters: Mapping[str, str]) -> None:
        self.topic = topic
        self._masters = dict(masters)
        self._known: set[bytes] = set()
        """The same few bodies come all the time, and reading them costs more than asking."""

    def lacks(self, body: bytes) -> str:
        """Why this is not it; empty: it is."""
        if body in self._known:
            return ""
        try:
            said = read_route(body)
        except BodyError as error:
            return f"no route but {body[:200]!r}: {error.message}"
        masters = {group.name: group.addresses.get(MASTER_ID) for group in said.groups}
        if masters != self._masters or said.queues.keys() != masters.keys():
            return f"masters {masters}, queues on {[*said.queues]}"
        self._known.add(body)
        return ""


class Client(Protocol):
    async def look_up(self) -> None: ...
    async def close(self) -> None: ...


class Following:
    """As RocketMQ's clients from 5.3.2 on: told to go away, it connects anew and asks again; else it tries once."""

    def __init__(self, address: str, route: Route, seen: Seen) -> None:
        self._line = Line(address, on_go_away=self._told)
        self._route = route
        self._seen = seen

    async def look_up(self) -> None:
        self._seen.connected_anew += self._line.was_lost
        ext = {"topic": self._route.topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self._line.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_ms=int(TIMEOUT_S * 1000))
        except PeerUnavailableError as error:
            self._seen.failed.append(str(error))
            return
        is_route = answer.code == ResponseCode.SUCCESS
        self._seen.take(self._route.lacks(answer.body) if is_route else f"code {answer.code}: {answer.remark}")

    async def close(self) -> None:
        await self._line.close()

    def _told(self) -> None:
        self._seen.moved += 1


class Old:
    """As clients of 4.9: it has never heard of going away. When the connection ends under a request, it asks once
    more.
    """

    def __init__(self, address: str, route: Route, seen: Seen) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._route = route
        self._seen = seen
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def look_up(self) -> None:
        if self._streams and self._streams[0].at_eof():
            self._seen.connected_anew += 1
            await self.close()
        for attempt in (1, 2):
            try:
                code, body = await asyncio.wait_for(self._ask(), TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                if attempt == 2:
                    self._seen.failed.append(repr(error))
                continue
            self._seen.retried += attempt - 1
            self._seen.take(self._route.lacks(body) if code == ResponseCode.SUCCESS else f"code {code}")
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


class Brief:
    """As a tool that is started for one question; it follows, too."""

    def __init__(self, address: str, route: Route, seen: Seen) -> None:
        self._inner = Following(address, route, seen)

    async def look_up(self) -> None:
        await self._inner.look_up()
        await self._inner.close()

    async def close(self) -> None:
        await self._inner.close()


class OverHttp:
    """Keeps its connections, retries nothing: HAProxy does."""

    def __init__(self, url: str, route: Route, seen: Seen) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._route = route
        self._seen = seen

    async def look_up(self) -> None:
        try:
            answer = await self._client.get(f"/v1/routes/{self._route.topic}")
        except httpx.HTTPError as error:
            self._seen.failed.append(repr(error))
            return
        if answer.status_code != httpx.codes.OK:
            self._seen.failed.append(f"{answer.status_code} {answer.text}")
            return
        self._seen.take(self._route.lacks(answer.content))

    async def close(self) -> None:
        await self._client.aclose()


class Crowd:
    """Many clients of one kind. `async with Crowd("old", 20, lambda seen: Old(…, seen)) as crowd:`"""

    def __init__(self, kind: str, count: int, make: Callable[[Seen], Client]) -> None:
        self.seen = SeenByKind(kind, [Seen() for _ in range(count)])
        self._clients = [make(seen) for seen in self.seen.each]
        self._tasks: list[asyncio.Task[None]] = []
        self._enough = False
        self._began = 0.0

    async def __aenter__(self) -> "Crowd":
        self._began = time.perf_counter()
        self._tasks = [
            asyncio.create_task(self._ask(client, seen))
            for client, seen in zip(self._clients, self.seen.each, strict=True)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whoever waits for an answer gets it, and is counted."""
        self._enough = True
        self.seen.seconds = time.perf_counter() - self._began
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.close()

    async def _ask(self, client: Client, seen: Seen) -> None:
        while not self._enough:
            began = time.perf_counter()
            await client.look_up()
            seen.longest_ms = max(seen.longest_ms, (time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE_S)
