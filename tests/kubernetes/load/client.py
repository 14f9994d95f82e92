"""A client that looks up routes continuously and checks every answer."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from routebook.protocol.frame import ResponseCode
from tests.kubernetes.load.caller import GO_AWAY_VERSION, LEGACY_VERSION, Caller, CallError
from tests.kubernetes.load.record import PATIENCE_S, Failure, Kind, Record, WrongAnswer

PAUSE_S: Final = 0.3
"""Minimum time between two tries; the second one follows the first at once."""
QUOTED_BYTES: Final = 200


class LoadClient:
    def __init__(
        self, name: str, kind: Kind, addresses: Sequence[str], expected: Mapping[str, str], record: Record
    ) -> None:
        """`expected`: for each topic the address of the broker that must be in its route."""
        self._name = name
        self._kind: Kind = kind
        self._expected = expected
        self._record = record
        self._caller = Caller(addresses, version=GO_AWAY_VERSION if kind == "go_away" else LEGACY_VERSION)

    async def run(self, period_s: float, stop: asyncio.Event) -> None:
        """Looks up until `stop` is set, and finishes the lookup in flight."""
        chance = random.Random(self._name)
        topics = sorted(self._expected)
        await asyncio.sleep(chance.uniform(0, period_s))
        try:
            while not stop.is_set():
                await self._look_up(chance.choice(topics))
                await asyncio.sleep(period_s * chance.uniform(0.8, 1.2))
        finally:
            self._caller.close()

    async def _look_up(self, topic: str) -> None:
        start, moves = time.monotonic(), self._caller.moves
        self._record.in_flight[self._name] = start
        try:
            await self._try_until_answered(topic, start)
        finally:
            del self._record.in_flight[self._name]
            self._record.moves += self._caller.moves - moves
        if (took := time.monotonic() - start) > 1:
            self._record.slowest.append((time.monotonic(), took))

    async def _try_until_answered(self, topic: str, start: float) -> None:
        attempt = 0
        while True:
            attempt += 1
            try_start = time.monotonic()
            try:
                await self._try(topic)
            except CallError as error:
                failure = Failure(time.monotonic(), self._name, self._kind, error.reason, attempt, start)
                self._record.failures.append(failure)
                if failure.at - start > PATIENCE_S:
                    self._record.lost.append(failure)
                    return
                if attempt > 1:
                    await asyncio.sleep(max(try_start + PAUSE_S - time.monotonic(), 0))
            else:
                self._record.answered[self._kind] += 1
                return

    async def _try(self, topic: str) -> None:
        response = await self._caller.look_up(topic)
        if response.code == ResponseCode.SUCCESS:
            if (difference := _difference(topic, self._expected[topic], response.body)) is not None:
                self._record_wrong_answer(f"{topic}: {difference}")
        elif response.code == ResponseCode.TOPIC_NOT_EXIST:
            self._record_wrong_answer(f"{topic}: no such topic")
        else:
            raise CallError(str(response.code), response.remark or "")

    def _record_wrong_answer(self, detail: str) -> None:
        self._record.wrong_answers.append(WrongAnswer(time.monotonic(), self._name, detail))


def _difference(topic: str, address: str, body: bytes) -> str | None:
    """How the body differs from a route to the broker, if it does. Topics of the load are named like their broker."""
    try:
        route = json.loads(body)
        masters = {broker["brokerName"]: broker["brokerAddrs"].get("0", "") for broker in route["brokerDatas"]}
        queues = [queue["brokerName"] for queue in route["queueDatas"]]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return f"not a route: {bytes(body[:QUOTED_BYTES])!r}: {error!r}"
    return None if masters.get(topic) == address and topic in queues else f"masters {masters}, queues on {queues}"
