"""One history lived on two name servers at once, answers compared step by step; then both are emptied."""

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.conformance.differential import said
from tests.conformance.differential.comparison import differences, seen
from tests.conformance.differential.departures import DEPARTURES
from tests.conformance.differential.emptying import empty, mark_of, members_of
from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.histories import READS
from tests.conformance.differential.line import Side, ask
from tests.conformance.differential.moods import ORDER_NAMESPACE
from tests.conformance.differential.steps import Bytes, Step
from tests.support.waiting import wait_until

MOVED = " moved"


@dataclass(frozen=True)
class Difference:
    at: int
    """The number of the step; beyond the last one it was found by asking everything at the end."""
    step: Step
    found: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.at}: {self.step}\n    " + "\n    ".join(self.found)


class Twins:
    """Two sides; whatever is asked is asked of both before either answer is awaited."""

    def __init__(self, one: Side, other: Side) -> None:
        self.sides = (one, other)
        self._run = secrets.token_hex(4)
        self._words = itertools.count(10_000)
        self.asked = 0
        self._over: dict[tuple[object, object], str] = {}
        """Cluster and address -> the connection that its last registration came over."""

    def live(self, history: Sequence[Step]) -> Difference | None:
        word = f"{self._run}{next(self._words)}"
        try:
            return self._live(history, word)
        finally:
            self._leave_nothing(word)

    def _live(self, history: Sequence[Step], word: str) -> Difference | None:
        at = 0
        steps = [*history, *_everything()]
        while at < len(steps):
            end = at + 1
            while end < len(steps) and _is_read(steps[at]) and _is_read(steps[end]) and end - at < 16:
                end += 1
            try:
                found = self._live_batch(at, steps[at:end], word)
            except (AssertionError, OSError) as error:
                return Difference(at, steps[at], (f"{type(error).__name__}: {error}",))
            if found:
                return found
            at = end
        if any(unasked := [side.unasked() for side in self.sides]):
            return Difference(at, steps[-1], tuple(f"answers that nobody asked for: {found}" for found in unasked))
        return None

    def _live_batch(self, at: int, steps: Sequence[Step], word: str) -> Difference | None:
        requests = [step.request(word) for step in steps]
        first = steps[0]
        if first.code == 104:
            self._set_mark(word)
        told = self._ask_all([(step.line, request) for step, request in zip(steps, requests, strict=True)])
        self.asked += len(requests)
        if first.code == 104:
            self._wait_for_mark(word)
        if first.code == 100 and not requests[0].is_answered:
            self._wait_for_value(requests[0])
        for offset, (request, answers) in enumerate(zip(requests, told, strict=True)):
            if answers is not None:
                one, other = (seen(request, answer) for answer in answers)
                if found := differences(one, other):
                    if any(departs(request, one, other, self.sides) for departs in DEPARTURES):
                        continue
                    return Difference(at + offset, steps[offset], tuple(found))
        if first.then == "expire":
            self._wait_until_gone(requests[0], "lets a silent broker expire")
            for side in self.sides:
                wait_until(partial(_is_closed, side, first.line), f"{side.name} closes its connection")
                side.drop(first.line)
        elif first.then:
            self._give_up(first, word)
        if not _is_read(first):
            for side in self.sides:
                side.settle()
        return None

    def _ask_all(self, asked: Sequence[tuple[str, Request]]) -> list[tuple[Answer, Answer] | None]:
        sent = [[side.send(line, request) for line, request in asked] for side in self.sides]
        told: list[tuple[Answer, Answer] | None] = []
        for place, (line, request) in enumerate(asked):
            if not request.is_answered:
                told.append(None)
            else:
                one, other = (side.receive(line, sent[i][place]) for i, side in enumerate(self.sides))
                told.append((one, other))
                if request.code == 103 and one.code == 0:
                    self._over[_member_of(request)] = line
        return told

    # Departures take effect behind their answer

    def _set_mark(self, word: str) -> None:
        self._ask_all([("mark", Request(103, mark_of(word)))])

    def _wait_for_mark(self, word: str) -> None:
        self._ask_all([("mark", Request(104, mark_of(word)))])
        for side in self.sides:
            wait_until(partial(_has_no_members, side, f"{word}mark"), f"{side.name} handles a 104")

    def _wait_for_value(self, put: Request) -> None:
        assert put.ext is not None
        for side in self.sides:
            wait_until(partial(_has_value, side, put.ext), f"{side.name} puts a value without an answer")

    def _give_up(self, step: Step, word: str) -> None:
        """A connection ends. Who was seated and alive over it goes: at once there, after a time of grace here."""
        request = step.request(word)
        assert request.ext is not None
        broker, address = str(request.ext["brokerName"]), str(request.ext["brokerAddr"])
        if step.then == "move":
            self._ask_all([(step.line + MOVED, request)])
        live, info = self._ask_all([(step.line, Request(322, request.ext)), (step.line, Request(106))])
        assert live
        assert info
        cluster_info: Any = read_body(info[0].body)[0]
        group = cluster_info["brokerAddrTable"].get(broker, {"cluster": None, "brokerAddrs": {}})
        goes = (
            bool(live[0].body)
            and self._over.get(_member_of(request)) == step.line
            and group["cluster"] == request.ext["clusterName"]
            and address in group["brokerAddrs"].values()
        )
        if live[0].body and not goes and self._over.get(_member_of(request)) == step.line:
            # Live without a seat: Apache's keeps such an entry for ever, Routebook drops it.
            return
        for side in self.sides:
            if goes:
                # An older one, still open: Apache's looks at the newest alone, Routebook waits for the last.
                side.drop(step.line + MOVED)
            side.drop(step.line)
        if goes:
            self._wait_until_gone(request, "notices a lost connection")

    def _wait_until_gone(self, registration: Request, what: str) -> None:
        ext = registration.ext or {}
        broker, address = str(ext["brokerName"]), str(ext["brokerAddr"])
        for side in self.sides:
            wait_until(partial(_has_no_member, side, broker, address), f"{side.name} {what}")

    # Afterwards

    def _leave_nothing(self, word: str) -> None:
        for side in self.sides:
            empty(side, word)
            # A connection that is quiet for two minutes is closed, and not every history uses all of them.
            side.hang_up()


def _has_no_members(side: Side, broker: str) -> bool:
    return not members_of(side, broker)


def _has_no_member(side: Side, broker: str, address: str) -> bool:
    return address not in members_of(side, broker).values()


def _has_value(side: Side, put: Mapping[str, object]) -> bool:
    return bool((ask(side, Request(101, put)).ext or {}).get("value") == put["value"])


def _is_closed(side: Side, line: str) -> bool:
    try:
        ask(side, Request(206), line=line)
    except ConnectionError:
        return True
    return False


def _is_read(step: Step) -> bool:
    return step.code in READS


def _member_of(registration: Request) -> tuple[object, object]:
    ext = registration.ext or {}
    return ext.get("clusterName"), ext.get("brokerAddr")


def _everything() -> list[Step]:
    """All that can be asked of the small world, so that nothing stays hidden in a table."""
    newest = [Step(105, {"topic": topic}) for topic in (*said.TOPICS, said.SOLO, "@strange")]
    oldest = [Step(105, {"topic": topic}, version=399) for topic in said.TOPICS]
    lists = [Step(code) for code in (106, 206, 304, 311, 312, 313, 319)]
    clusters = [Step(224, {"cluster": cluster}) for cluster in said.CLUSTERS]
    groups = [Step(901, {"clusterName": "any", "brokerName": broker}) for broker in said.BROKERS]
    versions = [
        Step(
            322,
            {"clusterName": cluster, "brokerAddr": address, "brokerName": "any", "brokerId": "0"},
            Bytes(b'{"timestamp":1}'),
        )
        for cluster in said.CLUSTERS
        for address in said.ADDRESSES
    ]
    kv = [Step(219, {"namespace": namespace}) for namespace in (ORDER_NAMESPACE, "@config")]
    return [*lists, *newest, *oldest, *clusters, *groups, *versions, *kv]
