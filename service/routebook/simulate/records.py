"""The output of a simulation: the journal, the counts, and the recorded route responses.

The journal has one JSON object per line, in the order in which the simulation learned of the events; docs/simulate.md
describes every field. `Recorder` looks up routes over HTTP and writes each response with its version, to test a history
of routes against. Most of its lookups are of topics that have just changed.
"""

import asyncio
import json
import math
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TextIO
from urllib.parse import quote

import httpx

from routebook.errors import PeerUnavailableError

FORMAT: Final = 1


def now_ms() -> int:
    return int(time.time() * 1000)


class Journal:
    def __init__(self, file: TextIO | None = None) -> None:
        """With `file` None, nothing is written."""
        self._file = file
        self._number = 0

    def record(self, event: str, **fields: object) -> None:
        """Writes a line. `n` counts the lines; `ms` is the time of writing."""
        if self._file is None:
            return
        self._number += 1
        line = {"n": self._number, "ms": now_ms(), "event": event, **fields}
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        # Complete lines, for programs that read the file during the run or after a kill.
        self._file.flush()


_BUCKETS_PER_DOUBLING: Final = 32
"""The edges of buckets are 2.2 % apart."""


@dataclass
class Latencies:
    """A histogram: millions of lookups in some hundred buckets."""

    _buckets: Counter[int] = field(default_factory=Counter)
    count: int = 0
    longest_ms: float = 0.0

    def add(self, ms: float) -> None:
        self._buckets[math.ceil(math.log2(max(ms, 1e-3)) * _BUCKETS_PER_DOUBLING)] += 1
        self.count += 1
        self.longest_ms = max(self.longest_ms, ms)

    def percentile(self, share: float) -> float:
        """The upper edge of the percentile's bucket, in ms; 0 without lookups."""
        rank, seen = math.ceil(share * self.count), 0
        for number, count in sorted(self._buckets.items()):
            seen += count
            if seen >= rank:
                return min(2 ** (number / _BUCKETS_PER_DOUBLING), self.longest_ms)
        return 0.0


@dataclass
class Counts:
    registrations: Counter[str] = field(default_factory=Counter)
    """Requests 103, by response code or `late` or `unreachable`."""
    requests: Counter[int] = field(default_factory=Counter)
    """Other requests of brokers and operators, by request code."""
    connections_lost: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    lookups: int = 0
    found: int = 0
    not_found: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Lookups with neither result, by response code or `late` or `unreachable`."""
    retries: int = 0
    """Lookups repeated on a new connection after GO_AWAY."""
    switches: int = 0
    """Changes of a client to another name server, or to a new connection to the only one."""
    latencies: Latencies = field(default_factory=Latencies)

    def count_outcome(self, code: int, outcome: str) -> None:
        if code == 103:
            self.registrations[outcome] += 1
        else:
            self.requests[code] += 1

    @property
    def failed(self) -> int:
        return self.failures.total()

    def document(self) -> dict[str, object]:
        percentiles = {
            f"p{100 * share:g}": round(self.latencies.percentile(share), 3) for share in (0.5, 0.9, 0.99, 0.999)
        }
        return {
            "registrations": dict(sorted(self.registrations.items())),
            "requests": {str(code): count for code, count in sorted(self.requests.items())},
            "connections_lost": self.connections_lost,
            "troubles": dict(sorted(self.troubles.items())),
            "lookups": {
                "asked": self.lookups,
                "found": self.found,
                "not_found": self.not_found,
                "failed": self.failed,
                "failures": dict(sorted(self.failures.items())),
                "retries": self.retries,
                "switches": self.switches,
                "latency_ms": percentiles | {"max": round(self.latencies.longest_ms, 3)},
            },
        }


RECENT: Final = 200
"""Number of topics that count as just changed."""
CHANGING_SHARE: Final = 0.9
LIST_EVERY_S: Final = 10.0
RECONNECT_S: Final = 0.5
"""Pause before a watch that was interrupted is opened again."""
WATCH_TIMEOUT_S: Final = 35.0
"""Read timeout of a watch, which sends a keep-alive comment every ten seconds."""
_PAGE: Final = 1000


class Recorder:
    """Behind a load balancer each line is still correct, but versions may fall from line to line, since workers can be
    some changes apart.
    """

    def __init__(
        self, url: str, out: TextIO, *, seed: int = 1, every_s: float = 0.02, verify: ssl.SSLContext | bool = True
    ) -> None:
        self.written = 0
        self._url = url.rstrip("/")
        self._out = out
        self._verify = verify
        self._every_s = every_s
        self._chance = random.Random(f"{seed}/recorder")  # noqa: S311 a simulation
        self._recent: dict[str, None] = {}
        self._known: list[str] = []

    async def run(self, count: int | None = None) -> None:
        """Ends after `count` lines; without `count`, it runs until it is cancelled."""
        async with httpx.AsyncClient(base_url=self._url, timeout=10, trust_env=False, verify=self._verify) as http:
            await self._list(http)
            async with _running(self._watch(http)), _running(self._keep_listing(http)):
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
            response = await http.get(f"/v1/routes/{quote(topic, safe='')}")
        except httpx.TransportError:
            return  # The worker may be restarting. Without a response, nothing is written.
        line: dict[str, Any] = {
            "topic": topic,
            "version": int(response.headers.get("x-routebook-version", 0)),
            "history": response.headers.get("x-routebook-history", ""),
            "status": response.status_code,
            "route": response.json() if response.is_success else None,
            "ms": now_ms(),
        }
        if stale := response.headers.get("x-routebook-stale-seconds"):
            line["stale_s"] = float(stale)
        self._out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._out.flush()
        self.written += 1

    async def _watch(self, http: httpx.AsyncClient) -> None:
        timeout = httpx.Timeout(WATCH_TIMEOUT_S, connect=5)
        while True:
            try:
                async with http.stream("GET", "/v1/watch", timeout=timeout) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: {"):
                            self._note_change(json.loads(line.removeprefix("data: ")))
            except httpx.TransportError:
                pass
            await asyncio.sleep(RECONNECT_S)

    def _note_change(self, event: dict[str, Any]) -> None:
        topic = event.get("topic")
        if isinstance(topic, str):
            self._recent.pop(topic, None)
            self._recent[topic] = None
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]

    async def _keep_listing(self, http: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(LIST_EVERY_S)
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
                response = await http.get("/v1/topics", params=params)
                response.raise_for_status()
                page = response.json()
            except (httpx.HTTPError, ValueError) as error:
                raise PeerUnavailableError(self._url, str(error) or type(error).__name__) from error
            found += [entry["topic"] for entry in page["topics"]]
            cursor = page.get("next_cursor")
            if not cursor:
                self._known = found
                return


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
