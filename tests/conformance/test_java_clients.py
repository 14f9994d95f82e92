"""Java producers and consumers of three releases use one address while workers behind it stop and start."""

from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import route
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Messages
from tests.conformance.name_services import NameService, RoutebookFleet, await_answers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance, pytest.mark.usefixtures("brokers")]

TOPICS, EACH = 5, 200


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", "4.9.3"])
def test_a_thousand_messages_arrive_while_a_worker_is_killed(
    version: str, release: Release, name_service: NameService, tmp_path: Path
) -> None:
    topics = [f"thousand-{version.replace('.', '_')}-{number}" for number in range(TOPICS)]
    # It looks up routes every second: before, while and after the worker is killed.
    with Messages(release(version), tmp_path, name_service.address, poll_ms=1000) as peer:
        assert peer.ask(f"subscribe thousand-{version.replace('.', '_')} {','.join(topics)}") == "subscribed"
        for number, topic in enumerate(topics):
            peer.send(f"send {topic} 0 {EACH}")
            if number == TOPICS // 2:
                peer.read("sent 100")
                killed = _kill_worker_of(topic, name_service)
            sent = peer.read()[-1]
            # Each topic is new: the client looks it up, then TBW102, and the broker registers it.
            assert f"sent {EACH} failures 0" in sent
        got = peer.ask(f"await thousand-{version.replace('.', '_')} {TOPICS * EACH}")
        assert got.startswith(f"got {TOPICS * EACH} ")
        if isinstance(name_service, RoutebookFleet):
            name_service.workers[killed].start()
    _check_keys_of_answers(version, topics, name_service)


def _check_keys_of_answers(version: str, topics: list[str], name_service: NameService) -> None:
    """4.9.3 gets unquoted integer keys, as name servers of that release sent them."""
    lookups = [frame for frame in name_service.log.requests(105) if frame.ext["topic"] in topics]
    answers = [name_service.log.answer_to(frame) for frame in lookups]
    bodies = [answer.body for answer in answers if answer and answer.code == 0]
    assert bodies
    expected = b'{0:"' if version == "4.9.3" else b'{"0":"'
    assert all(expected in body for body in bodies)


def _kill_worker_of(topic: str, name_service: NameService) -> int:
    """Kills the worker to which the producer of this topic is connected, and returns its number."""
    if not isinstance(name_service, RoutebookFleet):
        return 0
    lookups = [frame for frame in name_service.log.requests(105) if frame.ext["topic"] == topic]
    port = name_service.balancer.upstream_of(lookups[-1].connection)
    (number,) = [number for number, worker in enumerate(name_service.workers) if worker.port == port]
    name_service.workers[number].kill()
    return number


def test_a_new_topic_is_created_from_tbw102_and_gets_its_own_route(
    release: Release, name_service: NameService, brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    with Messages(release("5.5.0"), tmp_path, name_service.address) as peer:
        assert "failures 0" in peer.ask("send fallback 0 20")
        lookups = name_service.log.requests(105)
        first = next(frame for frame in lookups if frame.ext["topic"] == "fallback")
        fallback = next(frame for frame in lookups if frame.ext["topic"] == "TBW102" and frame.at >= first.at)
        answers = await_answers(name_service.log, [first, fallback])
        assert [answer.code for answer in answers] == [17, 0], answers
        # Each broker that received a message registers the topic at once.
        wait_until(
            lambda: len((route(name_service.address, "fallback") or {"queueDatas": ()})["queueDatas"]) == 2,
            "the topic on both brokers",
        )
        found = route(name_service.address, "fallback")
        assert found
        assert {(data["brokerName"], data["writeQueueNums"]) for data in found["queueDatas"]} == {
            (broker.name, 4) for broker in brokers
        }


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_client_with_binary_headers_sends_and_receives(
    version: str, release: Release, name_service: NameService, tmp_path: Path
) -> None:
    topic = f"binary-{version.replace('.', '_')}"
    env = {"ROCKETMQ_SERIALIZE_TYPE": "ROCKETMQ"}
    with Messages(release(version), tmp_path, name_service.address, env=env) as peer:
        peer.assert_exchange(topic, 50)
    lookups = [frame for frame in name_service.log.requests(105) if frame.ext["topic"] == topic]
    assert lookups
    assert all(frame.is_binary for frame in lookups)


def test_a_client_with_two_name_servers_continues_when_one_stops(
    release: Release, name_service: NameService, tmp_path: Path
) -> None:
    if not isinstance(name_service, RoutebookFleet):
        pytest.skip("needs two workers")
    with Messages(release("5.5.0"), tmp_path, ";".join(name_service.each), poll_ms=1000) as peer:
        for number, worker in enumerate(name_service.workers):
            # The second topic is new, so the client has to look it up at the other worker.
            assert "sent 20 failures 0" in peer.ask(f"send two-{number}-before 0 20")
            worker.stop()
            sent = peer.ask(f"send two-{number}-after 0 20")
            # One call fails because of the stopped worker. The next one uses the other.
            assert "sent 20" in sent
            worker.start()
