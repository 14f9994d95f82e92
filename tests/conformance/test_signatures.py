"""Real brokers, clients and mqadmin at a service that demands signatures of every request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.model.identity import Credentials, Identity, Role
from routebook.remoting.permissions import sign, signed_text
from tests.conformance.conftest import Release
from tests.conformance.frames import ask
from tests.conformance.jars import UnavailableError, go_program
from tests.conformance.java_processes import Broker, SigningBroker, mqadmin
from tests.conformance.java_programs import Messages, Program
from tests.conformance.name_services import RoutebookFleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

GO_PROGRAM = Path(__file__).parent / "go"
SECRET = "0123456789abcdef"
ROLES = {"broker": Role.BROKER, "client": Role.READ, "operator": Role.OPERATOR}
VERSIONS = ("5.5.0", "4.9.7")


def key_of(name: str) -> str:
    return f"key-of-{name}"


INNER_CLIENT = {
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{key_of("broker")}","secretKey":"{SECRET}"}}',
    # It stores the credentials with its own users, so it has to know where.
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider"
    ".LocalAuthenticationMetadataProvider",
}
"""How brokers since 5.3 sign what they send."""


def signing_as(name: str) -> tuple[str, str]:
    return f"-Daccess.key={key_of(name)}", f"-Dsecret.key={SECRET}"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutebookFleet]:
    """Two workers that listen on all addresses and answer nothing without a signature."""
    flags = ("--remoting-access", "signed", "--connection-grace-ms", "200")
    with RoutebookFleet(tmp_path_factory.mktemp("signed") / "names", flags=flags) as fleet:
        for name, role in ROLES.items():
            fleet.add_identity(Identity(name, role), Credentials(access_key=key_of(name), secret=SECRET))
        yield fleet


@pytest.fixture(scope="module")
def brokers(
    release: Release, names: RoutebookFleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, ...]]:
    """An unmodified one of 5.5.0, and one of 4.9.7 with the hook."""
    folder = tmp_path_factory.mktemp("brokers")
    with (
        Broker(
            release("5.5.0"),
            folder / "new",
            names.address,
            "broker-5",
            properties=INNER_CLIENT,
        ) as new,
        SigningBroker(release("4.9.7"), folder / "old", names.address, "broker-4", options=signing_as("broker")) as old,
    ):
        wait_until(lambda: registered(names) == {"broker-4", "broker-5"}, "both brokers are registered")
        yield new, old


def registered(names: RoutebookFleet) -> set[str]:
    """The groups that have an address, as a signed request sees them."""
    fields = {"AccessKey": key_of("client")}
    answer = ask(names.address, 106, fields | {"Signature": sign(SECRET, signed_text(fields).encode())})
    assert answer.code == 0, answer
    groups = answer.json()["brokerAddrTable"]
    return {name for name, group in groups.items() if group["brokerAddrs"]}


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_signing_producer_and_consumer_exchange_messages(
    version: str, release: Release, names: RoutebookFleet, tmp_path: Path
) -> None:
    with Messages(release(version), tmp_path, names.address, options=signing_as("client")) as peer:
        peer.assert_exchange(f"signed-{version.replace('.', '_')}", 50)


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("options", [(), ("-Daccess.key=key-of-client", "-Dsecret.key=another-secret-key")])
def test_a_client_without_the_right_signature_gets_no_route(
    options: tuple[str, ...], release: Release, names: RoutebookFleet, tmp_path: Path
) -> None:
    with Messages(release("5.5.0"), tmp_path, names.address, options=options) as peer:
        answer = peer.ask("queues TBW102")
        assert answer.startswith("failed"), answer
    assert ask(names.address, 105, {"topic": "TBW102"}).code == 16


def test_a_broker_without_a_signature_is_not_registered(
    release: Release, names: RoutebookFleet, brokers: tuple[Broker, ...], tmp_path: Path
) -> None:
    with Broker(release("5.5.0"), tmp_path / "broker", names.address, "unsigned"):
        wait_until(
            lambda: [frame for frame in names.log.requests(103) if frame.ext["brokerName"] == "unsigned"],
            "it tries to register",
        )
        refused = [frame for frame in names.log.requests(103) if frame.ext["brokerName"] == "unsigned"]
        wait_until(lambda: names.log.answer_to(refused[0]), "the registration is answered")
        answer = names.log.answer_to(refused[0])
        assert answer
        assert answer.code == 16
        assert registered(names) == {broker.name for broker in brokers}


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_with_tools_yml_works_and_without_is_refused(
    version: str, release: Release, names: RoutebookFleet, tmp_path: Path
) -> None:
    libraries = release(version)
    command = ("wipeWritePerm", "-n", names.address, "-b", "broker-5")
    refused = mqadmin(libraries, tmp_path / "without", *command)
    assert "must be signed" in refused, refused
    (tmp_path / "with" / "conf").mkdir(parents=True)
    tools = f"accessKey: {key_of('operator')}\nsecretKey: {SECRET}\n"
    (tmp_path / "with" / "conf" / "tools.yml").write_text(tools)
    assert "wipe write perm of broker[broker-5]" in mqadmin(libraries, tmp_path / "with", *command)
    add = ("addWritePerm", "-n", names.address, "-b", "broker-5")
    assert "add write perm of broker[broker-5]" in mqadmin(libraries, tmp_path / "with", *add)


@pytest.mark.usefixtures("brokers")
def test_a_signing_go_client_exchanges_messages_and_an_unsigned_one_is_refused(
    names: RoutebookFleet, tmp_path: Path
) -> None:
    try:
        program = go_program(GO_PROGRAM)
    except UnavailableError as error:
        pytest.skip(str(error))
    command = [str(program), names.address]
    keys = {"ACCESS_KEY": key_of("client"), "SECRET_KEY": SECRET, "HOME": str(tmp_path)}
    with Program(command, tmp_path / "signed", env=keys) as peer:
        assert peer.ask("send by-go 50") == "sent 50"
        assert peer.ask("subscribe by-go by-go") == "subscribed"
        assert peer.ask("await by-go 50") == "got 50 messages"
    with Program(command, tmp_path / "unsigned", env={"HOME": str(tmp_path)}) as peer:
        assert peer.ask("send by-go 1").startswith("failed")


def test_a_stopped_broker_leaves_with_a_signed_unregistration(
    release: Release, names: RoutebookFleet, brokers: tuple[Broker, ...], tmp_path: Path
) -> None:
    known = {broker.name for broker in brokers}
    with Broker(release("5.5.0"), tmp_path / "leaving", names.address, "leaving", properties=INNER_CLIENT) as broker:
        wait_until(lambda: registered(names) == {*known, "leaving"}, "it is registered")
        broker.stop()
        wait_until(lambda: registered(names) == known, "it has left")
    requests = [frame for frame in names.log.requests(104) if frame.ext["brokerName"] == "leaving"]
    answers = [names.log.answer_to(frame) for frame in requests]
    assert [answer.code for answer in answers if answer] == [0]
