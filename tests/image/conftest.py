"""The images of this tree, and a worker container with a store container."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.image.containers import RESTRICTED, Container, build_image
from tests.support.containers import image_name

STORE = "redis://store:6379"


@pytest.fixture(scope="session")
def worker_image() -> str:
    return build_image("worker")


@pytest.fixture(scope="session")
def pipeline_image() -> str:
    return build_image("pipeline")


@pytest.fixture
def network() -> Iterator[Any]:
    from testcontainers.core.network import Network  # noqa: PLC0415 slow to import

    with Network() as network:
        yield network


@pytest.fixture
def store(network: Any) -> Iterator[Container]:
    command = "redis-server --save '' --maxmemory-policy noeviction"
    with Container(image_name(), command, network=network, alias="store") as container:
        yield container


@pytest.fixture
def worker(worker_image: str, store: Container, network: Any) -> Iterator[Container]:
    """Restricted as in a pod: no capabilities, and only /tmp is writable."""
    with Container(
        worker_image,
        network=network,
        alias="worker",
        env={"ROUTEBOOK_REDIS_URL": STORE, "ROUTEBOOK_HTTP_HOST_NAMES": "worker"},
        ports=(9876, 8080),
        tmpfs=("/tmp",),
        **RESTRICTED,
    ) as container:
        container.wait_for_log("serves RocketMQ on")
        yield container
