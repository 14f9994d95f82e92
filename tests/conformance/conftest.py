"""Peers of RocketMQ, where this machine can have them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.frames import addresses
from tests.conformance.jars import Unavailable, jars
from tests.conformance.java_processes import Broker
from tests.conformance.java_programs import Admin
from tests.conformance.name_services import ApacheAlone, NameService, RoutebookFleet, everywhere, is_apache

Release = Callable[..., Path]

PROPERTIES = {"supportActingMaster": "true", "orderMessageEnable": "true", "notifyMinBrokerIdChanged": "true"}


@pytest.fixture(scope="session")
def release() -> Release:
    """`release("5.5.0")`, `release("5.5.0", "proxy")`: the folder of these jars, or the test is skipped."""

    def find(version: str, *artifacts: str) -> Path:
        try:
            return jars(version, *artifacts)
        except Unavailable as error:
            pytest.skip(str(error))

    return find


@pytest.fixture(scope="session")
def name_service(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameService]:
    """Of the whole run. Who stops a part of it, starts it again."""
    folder = tmp_path_factory.mktemp("name-service")
    libraries = release("5.5.0")
    if is_apache():
        with ApacheAlone(libraries, folder, PROPERTIES) as apache:
            yield apache
    else:
        with RoutebookFleet(folder, PROPERTIES, data_dir=folder / "store") as fleet:
            yield fleet


@pytest.fixture(scope="session")
def brokers(
    release: Release, name_service: NameService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    """Two masters of one cluster, a new one and an older one, for whoever sends messages. They stay up."""
    folder = tmp_path_factory.mktemp("brokers")
    names = ("broker-a", "5.5.0"), ("broker-b", "5.3.3")
    first, second = (Broker(release(version), folder / name, name_service.address, name) for name, version in names)
    with first, second:
        everywhere(name_service, lambda address: len(addresses(address, "DefaultCluster")) == 2, "both brokers")
        yield first, second


@pytest.fixture(scope="session")
def admin(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with Admin(release("5.5.0"), tmp_path_factory.mktemp("admin")) as admin:
        yield admin
