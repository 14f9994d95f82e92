"""The two name servers of these tests. One process of each lives through all histories."""

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Release
from tests.conformance.differential.line import RealSide
from tests.conformance.java_processes import HOST, ApacheNameServer
from tests.process.running import Running

SETTINGS = {
    # 318 is refused otherwise.
    "ROUTEBOOK_REMOTING_CONFIG_UPDATES": "true",
    # The histories wait for each lost connection. That many at once would be taken for the network's illness.
    "ROUTEBOOK_CONNECTION_GRACE_MS": "100",
    "ROUTEBOOK_NETWORK_ILL_MINIMUM": "1000",
}


@pytest.fixture(scope="module")
def apache(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSide]:
    jars = release("5.5.0", "namesrv")
    with ApacheNameServer(jars, tmp_path_factory.mktemp("apache"), heap_mb=256) as server:
        side = RealSide("Apache's", HOST, server.port)
        yield side
        side.hang_up()


@pytest.fixture(scope="module")
def routebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSide]:
    folder = tmp_path_factory.mktemp("routebook")
    with Running("up", "--data-dir", str(folder / "data"), folder=folder, env=SETTINGS) as service:
        side = RealSide("Routebook", HOST, int(service.remoting.rpartition(":")[2]))
        yield side
        side.hang_up()
