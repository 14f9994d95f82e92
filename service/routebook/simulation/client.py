"""One client: it asks for the routes of its topics, one after the other, every 30 s, always the same name server as
long as the connection lives.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from routebook.errors import PeerUnavailableError
from routebook.simulation.counts import Counts
from routebook.simulation.journal import Journal
from routebook.simulation.line import LateAnswerError, Line
from routebook.wire.codes import RequestCode, ResponseCode

LOOKUP_MS: Final = 3_000
"""Of 105: `mqClientApiTimeout`."""


class SimulatedClient:
    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        name_servers: Sequence[str],
        *,
        chance: random.Random,
        journal: Journal,
        counts: Counts,
        follows_go_away: bool,
    ) -> None:
        self.name = name
        self._topics = topics
        self._addresses = chance.sample(name_servers, len(name_servers))
        self._journal = journal
        self._counts = counts
        self._follows_go_away = follows_go_away
        self._turn = 0
        self._line = self._line_to(self._addresses[0])
        self._used = False
        self._missing: set[str] = set()
        """Topics that its last answer denied: told once."""

    async def run(self, first_after_s: float, poll_s: float) -> None:
        due = time.monotonic() + first_after_s
        while True:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += poll_s
            for topic in self._topics:
                await self._look_up(topic)

    async def close(self) -> None:
        await self._line.close()

    def _line_to(self, address: str) -> Line:
        return Line(address, follows_go_away=self._follows_go_away, on_go_away=self._count_retry)

    def _count_retry(self) -> None:
        self._counts.retries += self._follows_go_away

    async def _look_up(self, topic: str) -> None:
        """No second try within a call: the next call takes the next name server."""
        if self._used and not self._line.is_open:
            await self._line.close()
            self._turn += 1
            self._counts.switches += 1
            self._line = self._line_to(self._addresses[self._turn % len(self._addresses)])
        self._used = True
        counts, asked_at = self._counts, time.perf_counter()
        counts.lookups += 1
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            response = await self._line.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, timeout_ms=LOOKUP_MS)
        except PeerUnavailableError as error:
            self._failed(topic, "late" if isinstance(error, LateAnswerError) else "unreachable", error.reason)
            return
        ms = (time.perf_counter() - asked_at) * 1000
        if response.code == ResponseCode.SUCCESS and response.body:
            counts.found += 1
            if topic in self._missing:
                self._missing.remove(topic)
                self._journal.tell("found-again", client=self.name, server=self._line.address, topic=topic)
        elif response.code == ResponseCode.TOPIC_NOT_EXIST:
            counts.not_found += 1
            if topic not in self._missing:
                self._missing.add(topic)
                self._journal.tell("not-found", client=self.name, server=self._line.address, topic=topic)
        else:
            self._failed(topic, str(response.code), response.remark or "no body")
            return
        counts.latencies.add(ms)

    def _failed(self, topic: str, how: str, reason: str) -> None:
        self._counts.failures[how] += 1
        self._journal.tell(
            "lookup-failed", client=self.name, server=self._line.address, topic=topic, how=how, reason=reason
        )
