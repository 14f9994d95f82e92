"""RocketMQ's own processes, if they can be fetched and started on this machine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.frames import addresses
from tests.conformance.jars import UnavailableError, jars
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Admin
from tests.conformance.name_services import ApacheService, NameService, RoutebookFleet, is_apache, wait_everywhere

Release = Callable[..., Path]

PROPERTIES = {"supportActingMaster": "true", "orderMessageEnable": "true", "notifyMinBrokerIdChanged": "true"}


@pytest.fixture(scope="session")
def release() -> Release:
    """`release("5.5.0")` or `release("5.5.0", "proxy")` is a folder of these jars. Without it, the test is skipped."""

    def find(version: str, *artifacts: str) -> Path:
        try:
            return jars(version, *artifacts)
        except UnavailableError as error:
            pytest.skip(str(error))

    return find


@pytest.fixture(scope="session")
def name_service(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameService]:
    """The name service of the whole run. A test that stops a part of it starts that part again."""
    folder = tmp_path_factory.mktemp("name-service")
    libraries = release("5.5.0")
    if is_apache():
        with ApacheService(libraries, folder, PROPERTIES) as apache:
            yield apache
    else:
        # Like Apache's, it obeys mqadmin. Tests of permissions have services of their own. Many brokers leave at the
        # same time here, which must neither cause a hold nor be a mass disconnect.
        flags = ("--remoting-admin", "open", "--hold-minimum", "1000", "--mass-disconnect-minimum", "1000")
        with RoutebookFleet(folder, PROPERTIES, flags=flags, data_dir=folder / "store") as fleet:
            yield fleet


@pytest.fixture(scope="session")
def brokers(
    release: Release, name_service: NameService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    """Two masters of one cluster, of a new and an older release, for tests that send messages. They run to the end."""
    folder = tmp_path_factory.mktemp("brokers")
    names = ("broker-a", "5.5.0"), ("broker-b", "5.3.3")
    first, second = (Broker(release(version), folder / name, name_service.address, name) for name, version in names)
    with first, second:
        wait_everywhere(name_service, lambda address: len(addresses(address, "DefaultCluster")) == 2, "both brokers")
        yield first, second


@pytest.fixture(scope="session")
def admin(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with Admin(release("5.5.0"), tmp_path_factory.mktemp("admin")) as admin:
        yield admin
