"""Clients that look up all the time over one address, each by the manners of its kind, and what they saw."""

import asyncio
import json
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from routebook.errors import PeerUnavailableError
from routebook.simulation.line import Line
from routebook.wire.codes import RequestCode, ResponseCode
from tests.wire.plain_frames import framed

PAUSE_S = 0.02
TIMEOUT_S = 3.0
V4_9_7 = 407


@dataclass
class Seen:
    """By the clients of one kind."""

    lookups: int = 0
    moved: int = 0
    """Told to go away, and answered on another connection."""
    connected_anew: int = 0
    """Found the connection closed before they asked."""
    retried: int = 0
    """The connection ended while they waited, and the second try was answered."""
    failed: list[str] = field(default_factory=list)
    """Not answered by the second try either; for who follows, not by the first. Or answered without a route."""
    longest_ms: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.lookups} lookups, {self.moved} moved, {self.connected_anew} connected anew, "
            f"{self.retried} retried, {len(self.failed)} failed, longest {self.longest_ms:.0f} ms"
        )


class Client(Protocol):
    async def look_up(self) -> None: ...
    async def close(self) -> None: ...


class Following:
    """As RocketMQ's clients from 5.3.2 on: told to go away, it connects anew and asks again; else it tries once."""

    def __init__(self, address: str, topic: str, seen: Seen) -> None:
        self._line = Line(address, on_go_away=self._told)
        self._topic = topic
        self._seen = seen

    async def look_up(self) -> None:
        self._seen.connected_anew += self._line.was_lost
        ext = {"topic": self._topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self._line.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_ms=int(TIMEOUT_S * 1000))
        except PeerUnavailableError as error:
            self._seen.failed.append(str(error))
            return
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            self._seen.failed.append(f"code {answer.code}: {answer.remark}")

    async def close(self) -> None:
        await self._line.close()

    def _told(self) -> None:
        self._seen.moved += 1


class Old:
    """As clients of 4.9: it has never heard of going away. When the connection ends under a request, it asks once
    more.
    """

    def __init__(self, address: str, topic: str, seen: Seen) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._topic = topic
        self._seen = seen
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def look_up(self) -> None:
        if self._streams and self._streams[0].at_eof():
            self._seen.connected_anew += 1
            await self.close()
        for attempt in (1, 2):
            try:
                code = await asyncio.wait_for(self._ask(), TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                if attempt == 2:
                    self._seen.failed.append(repr(error))
                continue
            self._seen.retried += attempt - 1
            if code != ResponseCode.SUCCESS:
                self._seen.failed.append(f"code {code}")
            return

    async def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None

    async def _ask(self) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        ext = {"topic": self._topic}
        header = {"code": 105, "flag": 0, "language": "JAVA", "opaque": 1, "version": V4_9_7, "extFields": ext}
        writer.write(framed(json.dumps(header).encode()))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        code: int = json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])["code"]
        return code


class Brief:
    """As a tool that is started for one question; it follows, too."""

    def __init__(self, address: str, topic: str, seen: Seen) -> None:
        self._inner = Following(address, topic, seen)

    async def look_up(self) -> None:
        await self._inner.look_up()
        await self._inner.close()

    async def close(self) -> None:
        await self._inner.close()


class OverHttp:
    """Keeps its connections, retries nothing: HAProxy does."""

    def __init__(self, url: str, topic: str, seen: Seen) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._topic = topic
        self._seen = seen

    async def look_up(self) -> None:
        try:
            answer = await self._client.get(f"/v1/routes/{self._topic}")
        except httpx.HTTPError as error:
            self._seen.failed.append(repr(error))
            return
        if answer.status_code != httpx.codes.OK:
            self._seen.failed.append(f"{answer.status_code} {answer.text}")

    async def close(self) -> None:
        await self._client.aclose()


class Crowd:
    """Many clients of one kind. `async with Crowd("old", 20, lambda seen: Old(…, seen)) as crowd:`"""

    def __init__(self, kind: str, count: int, make: Callable[[Seen], Client]) -> None:
        self.kind = kind
        self.count = count
        self.seen = Seen()
        self._clients = [make(self.seen) for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._enough = False

    async def __aenter__(self) -> "Crowd":
        self._tasks = [asyncio.create_task(self._ask(client)) for client in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whoever waits for an answer gets it, and is counted."""
        self._enough = True
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.close()

    async def _ask(self, client: Client) -> None:
        while not self._enough:
            began = time.perf_counter()
            await client.look_up()
            self.seen.lookups += 1
            self.seen.longest_ms = max(self.seen.longest_ms, (time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE_S)
