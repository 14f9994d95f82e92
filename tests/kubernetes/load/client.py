"""A client that looks up routes all the time and never believes a wrong one."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from routebook.protocol.command import ResponseCode
from tests.kubernetes.load.caller import FOLLOWING, NOT_FOLLOWING, Caller, CallError
from tests.kubernetes.load.record import PATIENCE_S, Blank, Failure, Kind, Record

PAUSE_S: Final = 0.3
"""Before each try but the first two: the second one is made at once."""
QUOTED_BYTES: Final = 200


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

    async def run(self, period_s: float, enough: asyncio.Event) -> None:
        """Whatever was begun when it is enough gets its answer, or all its tries."""
        chance = random.Random(self._name)
        topics = sorted(self._expected)
        await asyncio.sleep(chance.uniform(0, period_s))
        try:
            while not enough.is_set():
                await self._look_up(chance.choice(topics))
                await asyncio.sleep(period_s * chance.uniform(0.8, 1.2))
        finally:
            self._caller.hang_up()

    async def _look_up(self, topic: str) -> None:
        began, moves = time.monotonic(), self._caller.moves
        self._record.under_way[self._name] = began
        try:
            await self._try_until_answered(topic, began)
        finally:
            del self._record.under_way[self._name]
            self._record.moves += self._caller.moves - moves
        if (took := time.monotonic() - began) > 1:
            self._record.slowest.append((time.monotonic(), took))

    async def _try_until_answered(self, topic: str, began: float) -> None:
        attempt = 0
        while True:
            attempt += 1
            asked_at = time.monotonic()
            try:
                await self._try(topic)
            except CallError as error:
                failure = Failure(time.monotonic(), self._name, self._kind, error.how, attempt, began)
                self._record.failures.append(failure)
                if failure.at - began > PATIENCE_S:
                    self._record.lost.append(failure)
                    return
                if attempt > 1:
                    await asyncio.sleep(max(asked_at + PAUSE_S - time.monotonic(), 0))
            else:
                self._record.answered[self._kind] += 1
                return

    async def _try(self, topic: str) -> None:
        response = await self._caller.look_up(topic)
        if response.code == ResponseCode.SUCCESS:
            if (blank := _blank(topic, self._expected[topic], response.body)) is not None:
                self._record.blanks.append(Blank(time.monotonic(), self._name, f"{topic}: {blank}"))
        elif response.code == ResponseCode.TOPIC_NOT_EXIST:
            self._record.blanks.append(Blank(time.monotonic(), self._name, f"{topic}: no such topic"))
        else:
            raise CallError(str(response.code), response.remark or "")


def _blank(topic: str, address: str, body: bytes) -> str | None:
    """Why this is no route to the broker; None: it is one. Topics of the load are named like their broker."""
    try:
        route = json.loads(body)
        masters = {one["brokerName"]: one["brokerAddrs"].get("0", "") for one in route["brokerDatas"]}
        queues = [one["brokerName"] for one in route["queueDatas"]]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return f"no route but {bytes(body[:QUOTED_BYTES])!r}: {error!r}"
    return None if masters.get(topic) == address and topic in queues else f"masters {masters}, queues on {queues}"
