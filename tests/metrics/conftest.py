"""Real services that have handled traffic: registrations, lookups, refused requests, an unregistration."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.metrics.traffic import make_traffic, start_service
from tests.runtime.running import Running


@pytest.fixture(scope="session")
def used_worker(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A worker of one process."""
    with start_service(store_url, tmp_path_factory.mktemp("one"), workers=1) as service:
        asyncio.run(make_traffic(service))
        yield service


@pytest.fixture(scope="session")
def used_processes(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A worker of two processes."""
    with start_service(store_url, tmp_path_factory.mktemp("two"), workers=2) as service:
        asyncio.run(make_traffic(service))
        yield service
