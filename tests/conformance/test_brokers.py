"""The life of a broker, of each kind there is: registers, serves a new topic, is killed, returns, stops in order."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import Frame, addresses, ask, route
from tests.conformance.java_processes import Broker
from tests.conformance.name_services import NameService, await_answers, everywhere
from tests.conformance.side_by_side import Outcomes, side_by_side
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

REGISTERS_WITHIN = 15.0
"""The first attempt can go nowhere; the next one is ten seconds later."""
GONE_WITHIN = 4.0
"""The grace of a lost connection and a second."""
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
def lives(
    request: pytest.FixtureRequest,
    release: Release,
    name_service: NameService,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    def live(kind: str) -> None:
        _Life(kind, release(KINDS[kind].version), name_service, tmp_path_factory.mktemp(kind)).live()

    with side_by_side(request, "kind", live) as outcomes:
        yield outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_registers_serves_dies_and_returns(kind: str, lives: Outcomes) -> None:
    lives[kind].result()


def test_a_slave_of_4_9_publishes_no_topics(release: Release, name_service: NameService, tmp_path: Path) -> None:
    libraries, cluster = release("4.9.7"), "cluster-old-pair"
    master, slave = (
        Broker(libraries, tmp_path / str(number), name_service.address, "old-pair", number, cluster=cluster)
        for number in (0, 1)
    )
    with slave:
        # Its topics wait for a master; only who asks for clusters sees it.
        everywhere(name_service, lambda address: slave.address in ask(address, 106).body.decode(), "the slave")
        for address in name_service.each:
            assert route(address, "old-pair") is None
        with master:
            seats = {"old-pair": {"0": master.address, "1": slave.address}}
            everywhere(name_service, lambda address: addresses(address, "old-pair") == seats, "both")


class _Life:
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

    def live(self) -> None:
        with self.broker:
            self._is_there()
            self._check_registration()
            self._new_topic("first")
            self._ask_first()
            self.broker.kill()
            self._is_gone(GONE_WITHIN)
            self.broker.start()
            self._is_there()
            self._new_topic("second")
            since = time.monotonic()
            self.broker.stop()
            wait_until(lambda: self._sent(104, since), "it says that it goes")
            self._is_gone(GONE_WITHIN)
            assert len(self._sent(104, since)) == 1

    def _is_there(self) -> None:
        seats = {self.name: {"0": self.broker.address}}

        def is_there(address: str) -> bool:
            return addresses(address, self.name) == addresses(address, self.broker.cluster) == seats

        everywhere(self.names, is_there, self.name, within=REGISTERS_WITHIN)

    def _is_gone(self, within: float) -> None:
        since = time.monotonic()
        everywhere(self.names, lambda address: route(address, self.name) is None, "gone", within=within)
        for address in self.names.each:
            assert route(address, self._topic("first")) is None
        print(f"{self.name}: gone everywhere after {time.monotonic() - since:.2f} s")

    def _topic(self, prefix: str) -> str:
        return f"{prefix}-{self.kind}".replace(".", "_")

    def _new_topic(self, prefix: str) -> None:
        """Made at the broker, as a tool does; it tells its name server at once, not with its next registration."""
        topic, since = self._topic(prefix), time.monotonic()
        made = ask(self.broker.address, 17, {"topic": topic, "defaultTopic": "TBW102", "order": "false", **QUEUES})
        assert made.code == 0, made
        everywhere(self.names, lambda address: route(address, topic), topic, within=REGISTERS_WITHIN)
        for address in self.names.each:
            found = route(address, topic)
            assert found
            assert [(data["readQueueNums"], data["perm"]) for data in found["queueDatas"]] == [(3, 6)]
        if self.kind.endswith("single-topics"):

            def told() -> bool:
                return topic in [frame.ext["topic"] for frame in self.names.log.requests(217, since=since)]

            # Its periodic registration may have been first.
            wait_until(told, f"{topic} in a registration of its own")

    def _sent(self, code: int, since: float = 0.0) -> list[Frame]:
        return self.names.log.of_broker(self.name, code, since=since)

    def _check_registration(self) -> None:
        if self.kind.endswith("split"):
            # It is there with the first part of its registration.
            wait_until(lambda: len(self._sent(103)) > 1, "its registration comes in parts")
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

    def _ask_first(self) -> None:
        if not self.kind.endswith("asks-first"):
            return

        def unchanged() -> bool:
            answers = [self.names.log.answer_to(frame) for frame in self._sent(322)]
            return any(answer and answer.code == 0 and answer.ext.get("changed") == "false" for answer in answers)

        wait_until(unchanged, "it asks, and hears that nothing has changed")
        question = self._sent(322)[-1]
        assert not question.is_oneway
        later = [frame for frame in self._sent(103, question.at) if frame.at > question.at + 1]
        assert not later, "it registers only what has changed"
