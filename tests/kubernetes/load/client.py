"""A client that looks up routes all the time and never believes a wrong one."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from routebook.wire.codes import ResponseCode
from tests.kubernetes.load.caller import FOLLOWING, NOT_FOLLOWING, Caller, CallError
from tests.kubernetes.load.record import Blank, Failure, Kind, Record

PATIENCE_S: Final = 30.0
"""How long a lookup is tried again before it counts as lost."""
PAUSE_S: Final = 0.3
"""Before each try but the first two: the second one is made at once."""


class LoadClient:
    def __init__(
        self, name: str, kind: Kind, addresses: Sequence[str], expected: Mapping[str, str], record: Record
    ) -> None:
        """`expected`: topic → address of the broker that must be in its route."""
        self._name = name
        self._kind: Kind = kind
        self._expected = expected
        self._record = record
        self._caller = Caller(addresses, version=FOLLOWING if kind == "follows" else NOT_FOLLOWING)

    async def run(self, period_s: float) -> None:
        chance = random.Random(self._name)
        topics = sorted(self._expected)
        await asyncio.sleep(chance.uniform(0, period_s))
        try:
            while True:
                await self._look_up(chance.choice(topics))
                await asyncio.sleep(period_s * chance.uniform(0.8, 1.2))
        finally:
            self._caller.hang_up()

    async def _look_up(self, topic: str) -> None:
        began, attempt, moves = time.monotonic(), 0, self._caller.moves
        self._record.lookups[self._kind] += 1
        while True:
            attempt += 1
            asked_at = time.monotonic()
            try:
                await self._try(topic)
                break
            except CallError as error:
                failure = Failure(time.monotonic(), self._name, self._kind, error.how, attempt)
                self._record.failures.append(failure)
                if failure.at - began > PATIENCE_S:
                    self._record.lost.append(failure)
                    break
                if attempt > 1:
                    await asyncio.sleep(max(asked_at + PAUSE_S - time.monotonic(), 0))
        self._record.moves += self._caller.moves - moves
        if (took := time.monotonic() - began) > 1:
            self._record.slowest.append((time.monotonic(), took))

    async def _try(self, topic: str) -> None:
        response = await self._caller.look_up(topic)
        if response.code == ResponseCode.SUCCESS:
            said = _brokers(response.body)
            if said.get(topic) != self._expected[topic]:
                self._record.blanks.append(Blank(time.monotonic(), self._name, f"{topic}: {said}"))
        elif response.code == ResponseCode.TOPIC_NOT_EXIST:
            self._record.blanks.append(Blank(time.monotonic(), self._name, f"{topic}: no such topic"))
        else:
            raise CallError(str(response.code), response.remark or "")


def _brokers(body: bytes) -> dict[str, str]:
    """Name → address of its master. Topics of the load are named like their broker."""
    route = json.loads(body)
    return {one["brokerName"]: one["brokerAddrs"].get("0", "") for one in route.get("brokerDatas", [])}
