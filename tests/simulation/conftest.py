"""A service of its own for each test: fleets must not meet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.running import Running

GRACE_MS = 500


@pytest.fixture
def service(store_url: str, namespace: str, tmp_path: Path) -> Iterator[Running]:
    flags = ("--bind-address", "127.0.0.1", "--connection-grace-ms", str(GRACE_MS))
    with Running("serve", "--redis-url", store_url, "--namespace", namespace, *flags, folder=tmp_path) as running:
        yield running
        running.stop()
