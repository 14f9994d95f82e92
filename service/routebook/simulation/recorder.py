"""What a live service answered at exactly which version: the truth that a history of routes is held against.

Most questions are about topics that have just changed; the others about any.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TextIO
from urllib.parse import quote

import httpx

from routebook.errors import PeerUnavailableError
from routebook.simulation.journal import now_ms

RECENT: Final = 200
"""Topics that count as just changed."""
CHANGING_SHARE: Final = 0.9
LISTED_EVERY_S: Final = 10.0
PAUSE_S: Final = 0.5
"""Before a watch that broke off is begun anew."""
SILENT_S: Final = 35.0
"""A watch says something every ten seconds."""
_PAGE: Final = 1000


class Recorder:
    """Behind a balancer each pair is still true, but versions do not rise: workers are some changes apart."""

    def __init__(self, url: str, out: TextIO, *, seed: int = 1, every_s: float = 0.02) -> None:
        self.written = 0
        self._url = url.rstrip("/")
        self._out = out
        self._every_s = every_s
        self._chance = random.Random(f"{seed}/recorder")  # noqa: S311 a simulation
        self._recent: dict[str, None] = {}
        self._known: list[str] = []

    async def run(self, count: int | None = None) -> None:
        """Until so many are written; else until it is cancelled."""
        async with httpx.AsyncClient(base_url=self._url, timeout=10, trust_env=False) as http:
            await self._list(http)
            async with _beside(self._watch(http)), _beside(self._keep_listing(http)):
                while count is None or self.written < count:
                    if topic := self._choose():
                        await self._record(http, topic)
                    await asyncio.sleep(self._every_s)

    def _choose(self) -> str | None:
        recent = list(self._recent)
        if recent and (not self._known or self._chance.random() < CHANGING_SHARE):
            return self._chance.choice(recent)
        return self._chance.choice(self._known) if self._known else None

    async def _record(self, http: httpx.AsyncClient, topic: str) -> None:
        try:
            answer = await http.get(f"/v1/routes/{quote(topic, safe='')}")
        except httpx.TransportError:
            return  # It is being replaced, perhaps: nothing was answered, nothing is written.
        line: dict[str, Any] = {
            "topic": topic,
            "version": int(answer.headers.get("x-routebook-version", 0)),
            "history": answer.headers.get("x-routebook-history", ""),
            "status": answer.status_code,
            "route": answer.json() if answer.is_success else None,
            "ms": now_ms(),
        }
        if stale := answer.headers.get("x-routebook-stale-seconds"):
            line["stale_s"] = float(stale)
        self._out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._out.flush()
        self.written += 1

    async def _watch(self, http: httpx.AsyncClient) -> None:
        timeout = httpx.Timeout(SILENT_S, connect=5)
        while True:
            try:
                async with http.stream("GET", "/v1/watch", timeout=timeout) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: {"):
                            self._changed(json.loads(line.removeprefix("data: ")))
            except httpx.TransportError:
                pass
            await asyncio.sleep(PAUSE_S)

    def _changed(self, event: dict[str, Any]) -> None:
        topic = event.get("topic")
        if isinstance(topic, str):
            self._recent.pop(topic, None)
            self._recent[topic] = None
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]

    async def _keep_listing(self, http: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(LISTED_EVERY_S)
            try:
                await self._list(http)
            except PeerUnavailableError:
                continue

    async def _list(self, http: httpx.AsyncClient) -> None:
        found: list[str] = []
        cursor: str | None = None
        while True:
            params = {"limit": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
            try:
                answer = await http.get("/v1/topics", params=params)
                answer.raise_for_status()
                page = answer.json()
            except (httpx.HTTPError, ValueError) as error:
                raise PeerUnavailableError(self._url, str(error) or type(error).__name__) from error
            found += [one["topic"] for one in page["topics"]]
            cursor = page.get("next_cursor")
            if not cursor:
                self._known = found
                return


@asynccontextmanager
async def _beside(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
