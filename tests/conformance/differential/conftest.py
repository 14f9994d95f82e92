"""The name servers of these tests. One process lives through all histories."""

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Release
from tests.conformance.differential.line import RealSide
from tests.conformance.java_processes import HOST, ApacheNameServer


@pytest.fixture(scope="module")
def apache(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSide]:
    jars = release("5.5.0", "namesrv")
    with ApacheNameServer(jars, tmp_path_factory.mktemp("apache"), heap_mb=256) as server:
        side = RealSide("Apache's", HOST, server.port)
        yield side
        side.close()
