"""Each test has its own service, so that fleets do not mix."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtime.running import Running

GRACE_MS = 500


@contextmanager
def _serving(store_url: str, namespace: str, folder: Path) -> Iterator[Running]:
    # A simulated fleet leaves at once, which must not be held as a mass removal.
    flags = ("--bind-address", "127.0.0.1", "--connection-grace-ms", str(GRACE_MS), "--hold-minimum", "1000")
    with Running("serve", "--redis-url", store_url, "--namespace", namespace, *flags, folder=folder) as running:
        yield running
        if running.process.poll() is None:
            running.stop()


@pytest.fixture
def service(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    with _serving(store_url, namespace_name, tmp_path) as running:
        yield running


@pytest.fixture
def other_service(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    """A second service on the same store and namespace."""
    with _serving(store_url, namespace_name, tmp_path) as running:
        yield running
