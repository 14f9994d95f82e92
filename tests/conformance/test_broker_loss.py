"""A broker is killed while a producer sends: nothing that it acknowledged is lost, and sending moves to another master.
It is that of another group, or the next one of the same group, which DLedger or a controller elects.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.conftest import PROPERTIES, Release
from tests.conformance.frames import addresses, ask
from tests.conformance.java_processes import HOST, ApacheController, Broker
from tests.conformance.java_programs import Admin, Messages
from tests.conformance.name_services import ApacheService, NameService, RoutebookFleet, wait_everywhere
from tests.conformance.parallel import Outcomes, run_in_parallel
from tests.support.ports import lasting_free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

MESSAGES, PAUSE_MS = 600, 20
KILL_AFTER = 100
TOPIC = "moving"
GET_ALL_TOPIC_CONFIG = 21


def send_through_the_loss(peer: Messages, topic: str, lose: Callable[[], None]) -> str:
    """Sends, calls `lose` in the middle, and returns what the producer reports. Each message must arrive in the end."""
    peer.send(f"send {topic} 0 {MESSAGES} {PAUSE_MS}")
    peer.read(f"sent {KILL_AFTER}")
    lose()
    sent = peer.read()[-1]
    assert f"sent {MESSAGES} " in sent, sent
    return sent


def assert_nothing_is_lost(peer: Messages, topic: str) -> None:
    assert peer.ask(f"subscribe group-of-{topic} {topic}") == "subscribed"
    got = peer.ask(f"await group-of-{topic} {MESSAGES}")
    assert got.startswith(f"got {MESSAGES} "), got


# -- two groups, side by side with Apache's name server


def test_sending_moves_to_the_other_group(
    release: Release, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Prints how long no message could be sent, with Routebook and with Apache's name server (`-rP` shows it)."""
    libraries = release("5.5.0")
    flags = ("--remoting-admin", "open", "--mass-disconnect-minimum", "1000")
    services: dict[str, NameService] = {
        "routebook": RoutebookFleet(tmp_path / "routebook", PROPERTIES, flags=flags),
        "apache": ApacheService(libraries, tmp_path / "apache", PROPERTIES),
    }
    for name, service in services.items():
        with ExitStack() as stack:
            stack.enter_context(service)  # type: ignore[arg-type]  # both are context managers
            longest_ms, failures = _lose_one_of_two(libraries, service, tmp_path / f"{name}-peers", stack)
        record_property(f"{name}_longest_pause_ms", longest_ms)
        print(f"{name}: no message was sent for at most {longest_ms} ms; {failures} sends failed")


def _lose_one_of_two(libraries: Path, names: NameService, folder: Path, stack: ExitStack) -> tuple[int, int]:
    first, second = (Broker(libraries, folder / name, names.address, name) for name in ("broker-a", "broker-b"))
    stack.enter_context(first)
    stack.enter_context(second)
    wait_everywhere(names, lambda address: len(addresses(address, "DefaultCluster")) == 2, "both brokers")
    peer = stack.enter_context(Messages(libraries, folder / "peer", names.address, poll_ms=1000))
    with Admin(libraries, folder / "admin") as admin:
        admin.run("updateTopic", "-n", names.address, "-c", "DefaultCluster", "-t", TOPIC)
    wait_everywhere(names, lambda address: len(addresses(address, TOPIC)) == 2, "the topic on both brokers")
    sent = send_through_the_loss(peer, TOPIC, first.kill)
    wait_everywhere(names, lambda address: set(addresses(address, TOPIC)) == {"broker-b"}, "the killed broker leaves")
    # What it had acknowledged is in its store, and comes with it.
    first.start()
    assert_nothing_is_lost(peer, TOPIC)
    found = re.search(r"failures (\d+) through .* longest (\d+) ms", sent)
    assert found, sent
    return int(found[2]), int(found[1])


# -- one group whose brokers elect their master


KINDS = ("dledger-5.5.0", "dledger-4.9.7", "controller-5.5.0")


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    release: Release,
    name_service: NameService,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    def run(kind: str) -> None:
        mode, _, version = kind.partition("-")
        tools, libraries, folder = release("5.5.0"), release(version), tmp_path_factory.mktemp(kind)
        if mode == "dledger":
            _lose_the_master(tools, name_service, folder, dledger_group(libraries, name_service, folder))
            return
        with ApacheController(libraries, folder / "controller") as controller:
            _lose_the_master(tools, name_service, folder, controlled_group(libraries, name_service, folder, controller))

    with run_in_parallel(request, "kind", run) as outcomes:
        yield outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_an_elected_master_takes_the_place_of_a_killed_one(kind: str, outcomes: Outcomes) -> None:
    outcomes[kind].result()


def dledger_group(libraries: Path, names: NameService, folder: Path) -> list[Broker]:
    """Three brokers that replicate their commit log by Raft. The leader registers with id 0."""
    name = f"raft-{folder.name}".replace(".", "-")
    ports = [lasting_free_port() for _ in range(3)]
    peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
    properties = {"enableDLegerCommitLog": "true", "dLegerGroup": name, "dLegerPeers": peers}
    return [
        Broker(
            libraries,
            folder / f"n{number}",
            names.address,
            name,
            cluster=f"cluster-{name}",
            properties={**properties, "dLegerSelfId": f"n{number}", "sendMessageThreadPoolNums": 4},
        )
        for number in range(3)
    ]


def controlled_group(libraries: Path, names: NameService, folder: Path, controller: ApacheController) -> list[Broker]:
    """Two brokers whose ids and master the controller decides. A master acknowledges what its slave has, too."""
    name = f"controlled-{folder.name}".replace(".", "-")
    properties = {
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "allAckInSyncStateSet": "true",
        "brokerHeartbeatInterval": 1000,
        "controllerHeartBeatTimeoutMills": 5000,
    }
    brokers = [
        Broker(libraries, folder / f"r{at}", names.address, name, cluster=f"cluster-{name}", properties=properties)
        for at in range(2)
    ]
    for broker in brokers:
        # The controller assigns the ids.
        broker.change(brokerId=-1, brokerRole="SLAVE", haListenPort=lasting_free_port())
    return brokers


def _lose_the_master(libraries: Path, names: NameService, folder: Path, brokers: Sequence[Broker]) -> None:
    group, topic = brokers[0].name, f"topic-{brokers[0].name}"
    with ExitStack() as stack:
        for broker in brokers:
            broker.launch()
            stack.callback(broker.kill)
        for broker in brokers:
            broker.wait_ready()
        _wait_for_group(names, group, brokers)
        peer = stack.enter_context(Messages(libraries, folder / "peer", names.address, poll_ms=1000))
        with Admin(libraries, folder / "admin") as admin:
            admin.run("updateTopic", "-n", names.address, "-c", brokers[0].cluster, "-t", topic)
        wait_everywhere(names, lambda address: group in addresses(address, topic), "the topic")
        # Messages are replicated at once, but slaves copy the topics every few seconds. A new master that does not know
        # a topic creates it again with fewer queues, and consumers do not see the messages of the others.
        for broker in brokers:
            wait_until(partial(_has_topic, broker, topic), f"{broker.folder.name} has copied the topic")
        lost: list[Broker] = []

        def lose() -> None:
            master = _seats(names.each[0], group)["0"]
            lost.extend(broker for broker in brokers if broker.address == master)
            lost[0].kill()

        send_through_the_loss(peer, topic, lose)
        left = [broker for broker in brokers if broker is not lost[0]]
        _wait_for_group(names, group, left)
        lost[0].start()
        _wait_for_group(names, group, brokers)
        assert_nothing_is_lost(peer, topic)


def _has_topic(broker: Broker, topic: str) -> bool:
    return f'"{topic}"' in ask(broker.address, GET_ALL_TOPIC_CONFIG).body.decode()


def _wait_for_group(names: NameService, group: str, brokers: Sequence[Broker]) -> None:
    """Exactly these brokers are in the route, and one of them is the master."""

    def is_complete(address: str) -> bool:
        seats = _seats(address, group)
        return "0" in seats and sorted(seats.values()) == sorted(broker.address for broker in brokers)

    wait_everywhere(names, is_complete, f"a master and {len(brokers) - 1} slaves of {group}")


def _seats(address: str, group: str) -> dict[str, str]:
    """By broker id, from the topic that each broker makes for its group."""
    return addresses(address, group).get(group, {})
