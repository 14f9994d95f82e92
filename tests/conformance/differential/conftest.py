"""The two name servers of these tests. One process of each serves all histories of a module."""

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Release
from tests.conformance.differential.connections import RealSide, SeveralWorkers
from tests.conformance.java_processes import HOST, ApacheNameServer
from tests.runtime.running import Running

SETTINGS = {
    # Otherwise administrative requests are refused, and 318 in particular.
    "ROUTEBOOK_REMOTING_ADMIN": "open",
    "ROUTEBOOK_REMOTING_CONFIG_UPDATES": "true",
    # The histories wait until a lost connection has its effect. Losing many at once must not be a mass disconnect.
    "ROUTEBOOK_CONNECTION_GRACE_MS": "100",
    "ROUTEBOOK_MASS_DISCONNECT_MINIMUM": "1000",
    # All brokers that expire here do so within a minute, which must not cause a hold.
    "ROUTEBOOK_HOLD_MINIMUM": "1000",
}


class Apache(ApacheNameServer):
    serialize_type = "JSON"

    def options(self) -> list[str]:
        return [*super().options(), f"-Drocketmq.serialize.type={self.serialize_type}"]


def serialize_type_of(request: pytest.FixtureRequest) -> str:
    """The serialization of all answers, which a test module may set."""
    serialize_type = getattr(request.module, "SERIALIZE_TYPE", "JSON")
    assert isinstance(serialize_type, str)
    return serialize_type


@pytest.fixture(scope="module")
def apache(
    request: pytest.FixtureRequest, release: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealSide]:
    server = Apache(release("5.5.0", "namesrv"), tmp_path_factory.mktemp("apache"), heap_mb=256)
    server.serialize_type = serialize_type_of(request)
    with server:
        side = RealSide("Apache's", HOST, server.port)
        yield side
        side.disconnect()


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralWorkers]:
    folder = tmp_path_factory.mktemp("workers")
    with Running("up", "--workers", "2", "--data-dir", str(folder / "data"), folder=folder, env=SETTINGS) as service:
        host, _, port = service.remoting.rpartition(":")
        side = SeveralWorkers("Routebook with two workers", host, int(port))
        yield side
        side.disconnect()


@pytest.fixture(scope="module")
def routebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSide]:
    folder = tmp_path_factory.mktemp("routebook")
    settings = SETTINGS | {"ROUTEBOOK_SERIALIZE_TYPE": serialize_type_of(request)}
    with Running("up", "--data-dir", str(folder / "data"), folder=folder, env=settings) as service:
        host, _, port = service.remoting.rpartition(":")
        side = RealSide("Routebook", host, int(port))
        yield side
        side.disconnect()
