"""A real service that has had real traffic: brokers, lookups over both ports, refusals, an unregistration."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.metrics.traffic import make_traffic, serving
from tests.runtime.running import Running


@pytest.fixture(scope="session")
def busy(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker."""
    with serving(store_url, tmp_path_factory.mktemp("one"), workers=1) as service:
        asyncio.run(make_traffic(service))
        yield service


@pytest.fixture(scope="session")
def busy_processes(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker of two processes."""
    with serving(store_url, tmp_path_factory.mktemp("two"), workers=2) as service:
        asyncio.run(make_traffic(service))
        yield service
