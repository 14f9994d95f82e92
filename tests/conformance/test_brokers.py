"""Brokers of several releases and configurations register, add a topic, are killed, return and stop."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import Frame, addresses, ask, route
from tests.conformance.java_processes import Broker
from tests.conformance.name_services import NameService, await_answers, wait_everywhere
from tests.conformance.parallel import Outcomes, run_in_parallel
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

REGISTERS_WITHIN = 15.0
"""If the first attempt fails, the next one is ten seconds later."""
REMOVED_WITHIN = 4.0
"""The grace time of a lost connection and a second."""
SPLIT_SIZE = 5
QUEUES = {
    "readQueueNums": "3",
    "writeQueueNums": "3",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
}


@dataclass(frozen=True)
class Kind:
    version: str = "5.5.0"
    properties: dict[str, object] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


KINDS = {
    "5.5.0": Kind(),
    "5.3.3": Kind("5.3.3"),
    "4.9.7": Kind("4.9.7"),
    "4.9.7-compressed": Kind("4.9.7", {"compressedRegister": "true"}),
    "5.5.0-asks-first": Kind(properties={"forceRegister": "false", "registerNameServerPeriod": 10_000}),
    "5.3.3-asks-first": Kind("5.3.3", {"forceRegister": "false", "registerNameServerPeriod": 10_000}),
    "5.5.0-split": Kind(properties={"enableSplitRegistration": "true", "splitRegistrationSize": SPLIT_SIZE}),
    "5.5.0-single-topics": Kind(properties={"enableSingleTopicRegister": "true"}),
    "5.5.0-binary-headers": Kind(env={"ROCKETMQ_SERIALIZE_TYPE": "ROCKETMQ"}),
}


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    release: Release,
    name_service: NameService,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    def run(kind: str) -> None:
        _Scenario(kind, release(KINDS[kind].version), name_service, tmp_path_factory.mktemp(kind)).check()

    with run_in_parallel(request, "kind", run) as outcomes:
        yield outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_registers_is_killed_and_returns(kind: str, outcomes: Outcomes) -> None:
    outcomes[kind].result()


def test_a_slave_of_4_9_publishes_no_topics(release: Release, name_service: NameService, tmp_path: Path) -> None:
    libraries, cluster = release("4.9.7"), "cluster-old-pair"
    master, slave = (
        Broker(libraries, tmp_path / str(number), name_service.address, "old-pair", number, cluster=cluster)
        for number in (0, 1)
    )
    with slave:
        # Its topics are published with a master; until then only the cluster information has the slave.
        wait_everywhere(name_service, lambda address: slave.address in ask(address, 106).body.decode(), "the slave")
        for address in name_service.each:
            assert route(address, "old-pair") is None
        with master:
            seats = {"old-pair": {"0": master.address, "1": slave.address}}
            wait_everywhere(name_service, lambda address: addresses(address, "old-pair") == seats, "both")


class _Scenario:
    def __init__(self, kind: str, libraries: Path, name_service: NameService, folder: Path) -> None:
        self.kind, self.names = kind, name_service
        self.name = f"broker-{kind}"
        self.broker = Broker(
            libraries,
            folder,
            name_service.address,
            self.name,
            cluster=f"cluster-{kind}",
            env=KINDS[kind].env,
            properties=KINDS[kind].properties,
        )

    def check(self) -> None:
        with self.broker:
            self._wait_until_registered()
            self._check_registration()
            self._check_new_topic("first")
            self._check_version_query()
            self.broker.kill()
            self._wait_until_removed(REMOVED_WITHIN)
            self.broker.start()
            self._wait_until_registered()
            self._check_new_topic("second")
            since = time.monotonic()
            self.broker.stop()
            wait_until(lambda: self._sent(104, since), "the broker unregisters")
            self._wait_until_removed(REMOVED_WITHIN)
            assert len(self._sent(104, since)) == 1

    def _wait_until_registered(self) -> None:
        seats = {self.name: {"0": self.broker.address}}

        def is_registered(address: str) -> bool:
            return addresses(address, self.name) == addresses(address, self.broker.cluster) == seats

        wait_everywhere(self.names, is_registered, self.name, within=REGISTERS_WITHIN)

    def _wait_until_removed(self, within: float) -> None:
        since = time.monotonic()
        wait_everywhere(self.names, lambda address: route(address, self.name) is None, "removed", within=within)
        for address in self.names.each:
            assert route(address, self._topic("first")) is None
        print(f"{self.name}: removed everywhere after {time.monotonic() - since:.2f} s")

    def _topic(self, prefix: str) -> str:
        return f"{prefix}-{self.kind}".replace(".", "_")

    def _check_new_topic(self, prefix: str) -> None:
        """Creates a topic at the broker, as the tool does. The broker registers it at once."""
        topic, since = self._topic(prefix), time.monotonic()
        created = ask(self.broker.address, 17, {"topic": topic, "defaultTopic": "TBW102", "order": "false", **QUEUES})
        assert created.code == 0, created
        wait_everywhere(self.names, lambda address: route(address, topic), topic, within=REGISTERS_WITHIN)
        for address in self.names.each:
            found = route(address, topic)
            assert found
            assert [(data["readQueueNums"], data["perm"]) for data in found["queueDatas"]] == [(3, 6)]
        if self.kind.endswith("single-topics"):

            def is_registered_alone() -> bool:
                return topic in [frame.ext["topic"] for frame in self.names.log.requests(217, since=since)]

            # The periodic registration may have come first.
            wait_until(is_registered_alone, f"{topic} in a registration of its own")

    def _sent(self, code: int, since: float = 0.0) -> list[Frame]:
        return self.names.log.of_broker(self.name, code, since=since)

    def _check_registration(self) -> None:
        if self.kind.endswith("split"):
            # The broker is in the route table with the first part of its registration.
            wait_until(lambda: len(self._sent(103)) > 1, "the second part of the registration")
        registrations = self._sent(103)
        first = registrations[0]
        assert first.ext.get("enableActingMaster") == ("false" if self.kind.startswith("5") else None)
        assert first.ext["compressed"] == ("true" if self.kind.endswith("compressed") else "false")
        assert first.is_binary == self.kind.endswith("binary-headers")
        assert first.ext["bodyCrc32"] != "0"
        answers = await_answers(self.names.log, registrations)
        refused = [pair for pair in zip(registrations, answers, strict=True) if pair[1].code != 0]
        assert not refused, refused
        if self.kind.endswith("split"):
            sizes = [
                len(json.loads(frame.body)["topicConfigSerializeWrapper"]["topicConfigTable"])
                for frame in registrations
            ]
            assert max(sizes) <= SPLIT_SIZE

    def _check_version_query(self) -> None:
        if not self.kind.endswith("asks-first"):
            return

        def is_unchanged() -> bool:
            answers = [self.names.log.answer_to(frame) for frame in self._sent(322)]
            return any(answer and answer.code == 0 and answer.ext.get("changed") == "false" for answer in answers)

        wait_until(is_unchanged, "an answer that nothing has changed")
        query = self._sent(322)[-1]
        assert not query.is_oneway
        later = [frame for frame in self._sent(103, query.at) if frame.at > query.at + 1]
        assert not later, "the broker must not register without a change"
