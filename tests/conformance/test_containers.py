"""A broker container has several brokers in one process, with one connection to the name server."""

from pathlib import Path

import pytest

from tests.conformance.conftest import Release
from tests.conformance.frames import addresses, route
from tests.conformance.java_processes import Broker, BrokerContainer
from tests.conformance.name_services import NameService, wait_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.conformance]


def test_both_brokers_of_a_container_register_and_are_removed(
    release: Release, name_service: NameService, tmp_path: Path
) -> None:
    libraries = release("5.5.0", "container")
    brokers = [
        Broker(libraries, tmp_path / name, name_service.address, name, cluster="contained") for name in ("in-1", "in-2")
    ]
    with BrokerContainer(libraries, tmp_path / "container", name_service.address, brokers) as container:
        seats = {broker.name: {"0": broker.address} for broker in brokers}
        wait_everywhere(name_service, lambda address: addresses(address, "contained") == seats, "both brokers")
        registered = {frame.connection for broker in brokers for frame in name_service.log.of_broker(broker.name, 103)}
        assert len(registered) == 1
        container.kill()
        # Apache's name server removes only one of them at once, and the others when they expire: docs/compatibility.md.
        wait_everywhere(name_service, lambda address: route(address, "contained") is None, "both brokers are removed")
