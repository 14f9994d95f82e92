"""Runs a history on two name servers, compares their answers step by step, and cleans both up."""

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.conformance.differential import content
from tests.conformance.differential.answers import compared, differences
from tests.conformance.differential.cleanup import clean_up, marker, members_of
from tests.conformance.differential.connections import Side, ask
from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.histories import READS
from tests.conformance.differential.known_differences import KNOWN_DIFFERENCES
from tests.conformance.differential.profiles import ORDER_NAMESPACE
from tests.conformance.differential.steps import Bytes, Step
from tests.support.waiting import wait_until

REPLACED = " replaced"


@dataclass(frozen=True)
class Difference:
    at: int
    """The number of the step. After the last step follow lookups of everything."""
    step: Step
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.at}: {self.step}\n    " + "\n    ".join(self.fields)


class Comparison:
    """Two sides. Each request is sent to both before their answers are read."""

    def __init__(self, one: Side, other: Side) -> None:
        self.sides = (one, other)
        self._random = secrets.token_hex(4)
        self._prefixes = itertools.count(10_000)
        self.requests = 0
        self._connection_of: dict[tuple[object, object], str] = {}
        """Cluster and address -> the connection of its last registration."""

    def run(self, history: Sequence[Step]) -> Difference | None:
        prefix = f"{self._random}{next(self._prefixes)}"
        try:
            return self._run(history, prefix)
        finally:
            self._clean_up(prefix)

    def _run(self, history: Sequence[Step], prefix: str) -> Difference | None:
        at = 0
        steps = [*history, *_final_lookups()]
        while at < len(steps):
            end = at + 1
            while end < len(steps) and _is_read(steps[at]) and _is_read(steps[end]) and end - at < 16:
                end += 1
            try:
                difference = self._run_batch(at, steps[at:end], prefix)
            except (AssertionError, OSError) as error:
                return Difference(at, steps[at], (f"{type(error).__name__}: {error}",))
            if difference:
                return difference
            at = end
        if any(unexpected := [side.unexpected_answers() for side in self.sides]):
            return Difference(at, steps[-1], tuple(f"unexpected answers: {answers}" for answers in unexpected))
        return None

    def _run_batch(self, at: int, steps: Sequence[Step], prefix: str) -> Difference | None:
        requests = [step.request(prefix) for step in steps]
        first = steps[0]
        if first.code == 104:
            self._register_marker(prefix)
        all_answers = self._ask_all([(step.connection, request) for step, request in zip(steps, requests, strict=True)])
        self.requests += len(requests)
        if first.code == 104:
            self._wait_for_marker(prefix)
        if first.code == 100 and not requests[0].is_answered:
            self._wait_for_value(requests[0])
        for offset, (request, answers) in enumerate(zip(requests, all_answers, strict=True)):
            if answers is not None:
                one, other = (compared(request, answer) for answer in answers)
                if fields := differences(one, other):
                    if any(is_known(request, one, other, self.sides) for is_known in KNOWN_DIFFERENCES):
                        continue
                    return Difference(at + offset, steps[offset], tuple(fields))
        if first.then == "expire":
            self._wait_until_removed(requests[0], "removes an expired broker")
            for side in self.sides:
                wait_until(partial(_is_closed, side, first.connection), f"{side.name} closes its connection")
                side.drop(first.connection)
        elif first.then:
            self._lose_connection(first, prefix)
        if not _is_read(first):
            for side in self.sides:
                side.wait_for_last_write()
        return None

    def _ask_all(self, asked: Sequence[tuple[str, Request]]) -> list[tuple[Answer, Answer] | None]:
        sent = [[side.send(connection, request) for connection, request in asked] for side in self.sides]
        answers: list[tuple[Answer, Answer] | None] = []
        for place, (connection, request) in enumerate(asked):
            if not request.is_answered:
                answers.append(None)
            else:
                one, other = (side.receive(connection, sent[i][place]) for i, side in enumerate(self.sides))
                answers.append((one, other))
                if request.code == 103 and one.code == 0:
                    self._connection_of[_instance_of(request)] = connection
        return answers

    # An unregistration takes effect after its answer

    def _register_marker(self, prefix: str) -> None:
        self._ask_all([("mark", Request(103, marker(prefix)))])

    def _wait_for_marker(self, prefix: str) -> None:
        self._ask_all([("mark", Request(104, marker(prefix)))])
        for side in self.sides:
            wait_until(partial(_has_no_members, side, f"{prefix}mark"), f"{side.name} handles a 104")

    def _wait_for_value(self, put: Request) -> None:
        assert put.ext is not None
        for side in self.sides:
            wait_until(partial(_has_value, side, put.ext), f"{side.name} puts a value without an answer")

    def _lose_connection(self, step: Step, prefix: str) -> None:
        """Closes the connection of a broker. Apache's name server removes it at once, Routebook after a grace time."""
        request = step.request(prefix)
        assert request.ext is not None
        broker, address = str(request.ext["brokerName"]), str(request.ext["brokerAddr"])
        if step.then == "replace":
            self._ask_all([(step.connection + REPLACED, request)])
        live, info = self._ask_all([(step.connection, Request(322, request.ext)), (step.connection, Request(106))])
        assert live
        assert info
        cluster_info: Any = read_body(info[0].body)[0]
        group = cluster_info["brokerAddrTable"].get(broker, {"cluster": None, "brokerAddrs": {}})
        is_removed = (
            bool(live[0].body)
            and self._connection_of.get(_instance_of(request)) == step.connection
            and group["cluster"] == request.ext["clusterName"]
            and address in group["brokerAddrs"].values()
        )
        if live[0].body and not is_removed and self._connection_of.get(_instance_of(request)) == step.connection:
            # An instance without a seat: Apache's name server keeps it, and Routebook removes it.
            return
        for side in self.sides:
            if is_removed:
                # The older connection is still open: Apache's name server ignores it, and Routebook waits for its end.
                side.drop(step.connection + REPLACED)
            side.drop(step.connection)
        if is_removed:
            self._wait_until_removed(request, "removes the broker of a lost connection")

    def _wait_until_removed(self, registration: Request, what: str) -> None:
        ext = registration.ext or {}
        broker, address = str(ext["brokerName"]), str(ext["brokerAddr"])
        for side in self.sides:
            wait_until(partial(_has_no_member, side, broker, address), f"{side.name} {what}")

    # Clean-up

    def _clean_up(self, prefix: str) -> None:
        for side in self.sides:
            clean_up(side, prefix)
            # Idle connections are closed after two minutes, and not every history uses all of them.
            side.disconnect()


def _has_no_members(side: Side, broker: str) -> bool:
    return not members_of(side, broker)


def _has_no_member(side: Side, broker: str, address: str) -> bool:
    return address not in members_of(side, broker).values()


def _has_value(side: Side, put: Mapping[str, object]) -> bool:
    return bool((ask(side, Request(101, put)).ext or {}).get("value") == put["value"])


def _is_closed(side: Side, connection: str) -> bool:
    try:
        ask(side, Request(206), connection=connection)
    except ConnectionError:
        return True
    return False


def _is_read(step: Step) -> bool:
    return step.code in READS


def _instance_of(registration: Request) -> tuple[object, object]:
    ext = registration.ext or {}
    return ext.get("clusterName"), ext.get("brokerAddr")


def _final_lookups() -> list[Step]:
    """Lookups of everything, so that no difference in a table remains hidden."""
    newest = [Step(105, {"topic": topic}) for topic in (*content.TOPICS, content.SOLO, "@strange")]
    oldest = [Step(105, {"topic": topic}, version=399) for topic in content.TOPICS]
    lists = [Step(code) for code in (106, 206, 304, 311, 312, 313, 319)]
    clusters = [Step(224, {"cluster": cluster}) for cluster in content.CLUSTERS]
    groups = [Step(901, {"clusterName": "any", "brokerName": broker}) for broker in content.BROKERS]
    versions = [
        Step(
            322,
            {"clusterName": cluster, "brokerAddr": address, "brokerName": "any", "brokerId": "0"},
            Bytes(b'{"timestamp":1}'),
        )
        for cluster in content.CLUSTERS
        for address in content.ADDRESSES
    ]
    kv = [Step(219, {"namespace": namespace}) for namespace in (ORDER_NAMESPACE, "@config")]
    return [*lists, *newest, *oldest, *clusters, *groups, *versions, *kv]
