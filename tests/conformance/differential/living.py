"""One history lived on two name servers at once, answers compared step by step; then both are emptied."""

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.differential import said
from tests.conformance.differential.comparison import differences, seen
from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.histories import READS
from tests.conformance.differential.line import Side, ask, until
from tests.conformance.differential.moods import ORDER_NAMESPACE
from tests.conformance.differential.steps import Bytes, Step

MARK = "127.255.0.1:10911"
"""Of a broker that comes and goes again to show that the queue of departures has been worked off up to it."""


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

    def live(self, history: Sequence[Step]) -> Difference | None:
        word = f"{self._run}{next(self._words)}"
        try:
            return self._live(history, word)
        finally:
            self._leave_nothing(word)

    def _live(self, history: Sequence[Step], word: str) -> Difference | None:
        at = 0
        steps = [*history, *_everything(history)]
        while at < len(steps):
            end = at + 1
            while end < len(steps) and _is_read(steps[at]) and _is_read(steps[end]) and end - at < 16:
                end += 1
            if found := self._live_batch(at, steps[at:end], word):
                return found
            at = end
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
        for offset, (request, answers) in enumerate(zip(requests, told, strict=True)):
            if answers is not None:
                one, other = (seen(request, answer) for answer in answers)
                if found := differences(one, other):
                    return Difference(at + offset, steps[offset], tuple(found))
        if first.then:
            self._give_up(first, word)
        return None

    def _ask_all(self, asked: Sequence[tuple[str, Request]]) -> list[tuple[Answer, Answer] | None]:
        sent = [[side.send(line, request) for line, request in asked] for side in self.sides]
        told: list[tuple[Answer, Answer] | None] = []
        for place, (line, request) in enumerate(asked):
            if request.is_oneway:
                told.append(None)
            else:
                one, other = (side.receive(line, sent[i][place]) for i, side in enumerate(self.sides))
                told.append((one, other))
        return told

    # Departures take effect behind their answer

    def _set_mark(self, word: str) -> None:
        self._ask_all([("mark", Request(103, _mark(word)))])

    def _wait_for_mark(self, word: str) -> None:
        for side in self.sides:
            ask(side, Request(104, _mark(word)), line="mark")
            until(f"{side.name} handles a 104", lambda side=side: not _members(side, f"{word}mark"))  # type: ignore[misc]

    def _give_up(self, step: Step, word: str) -> None:
        """A connection ends. Who was seated and alive over it goes: at once there, after a time of grace here."""
        request = step.request(word)
        assert request.ext is not None
        broker, address = str(request.ext["brokerName"]), str(request.ext["brokerAddr"])
        told = self._ask_all([(step.line, Request(322, request.ext)), (step.line, Request(106))])
        assert told[0]
        assert told[1]
        cluster_info: Any = read_body(told[1][0].body)[0]
        group = cluster_info["brokerAddrTable"].get(broker, {"cluster": None, "brokerAddrs": {}})
        goes = (
            bool(told[0][0].body)
            and group["cluster"] == request.ext["clusterName"]
            and address in group["brokerAddrs"].values()
        )
        if step.then == "move":
            self._ask_all([(step.line + " moved", request)])
            goes = False
        for side in self.sides:
            side.drop(step.line)
        if goes:
            for side in self.sides:
                until(
                    f"{side.name} notices a lost connection",
                    lambda side=side: address not in _members(side, broker).values(),  # type: ignore[misc]
                )

    # Afterwards

    def _leave_nothing(self, word: str) -> None:
        for side in self.sides:
            _empty(side, word)
            for name in _lines(word):
                side.drop(name)


def _is_read(step: Step) -> bool:
    return step.code in READS or step.is_oneway


def _lines(word: str) -> list[str]:
    return [f"{c} {b} {a}" for c in said.CLUSTERS for b in said.BROKERS for a in said.ADDRESSES]


def _mark(word: str) -> dict[str, object]:
    return {
        "clusterName": f"{word}mark",
        "brokerName": f"{word}mark",
        "brokerAddr": MARK,
        "brokerId": "0",
        "haServerAddr": "",
    }


def _members(side: Side, broker: str) -> dict[str, str]:
    answer = ask(side, Request(901, {"clusterName": "any", "brokerName": broker}))
    parsed: Any = read_body(answer.body)[0]
    found: dict[str, str] = parsed["brokerMemberGroup"]["brokerAddrs"]
    return found


def _everything(history: Sequence[Step]) -> list[Step]:
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


def _empty(side: Side, word: str) -> None:
    """Unregisters whoever is there, cluster by cluster; then topics, then what an unordered history must not see."""
    for _ in range(20):
        info: Any = read_body(ask(side, Request(106)).body)[0]
        listed = [(cluster, name) for cluster, names in info["clusterAddrTable"].items() for name in names]
        listed += [(f"{word}gone", name) for name in info["brokerAddrTable"] if name not in {n for _, n in listed}]
        if not listed:
            break
        for cluster, name in listed:
            _remove_group(side, cluster, name, word)
    else:
        raise AssertionError(f"{side.name} keeps {info}")
    switch_on = Step(318, body=Bytes(b"enableAllTopicList=true")).request(word)
    ask(side, switch_on)
    topics: Any = read_body(ask(side, Request(206)).body)[0]
    for topic in topics["topicList"]:
        ask(side, Request(216, {"topic": topic}))
    kv = ask(side, Request(219, {"namespace": ORDER_NAMESPACE}))
    if kv.code == 0:
        table: Any = read_body(kv.body)[0]
        for key in table["table"]:
            ask(side, Request(102, {"namespace": ORDER_NAMESPACE, "key": key}))


def _remove_group(side: Side, cluster: str, name: str, word: str) -> None:
    """The cluster forgets the name only with the last member that leaves through it: so one enters through it first."""
    seat = {"clusterName": cluster, "brokerName": name, "brokerAddr": MARK, "brokerId": "0", "haServerAddr": ""}
    ask(side, Request(103, seat))
    ask(side, Request(103, _mark(word)), line="mark")
    for address in {*_members(side, name).values(), MARK}:
        ask(side, Request(104, seat | {"brokerAddr": address}))
    ask(side, Request(104, _mark(word)), line="mark")
    until(f"{side.name} empties {name}", lambda: not _members(side, f"{word}mark"))
