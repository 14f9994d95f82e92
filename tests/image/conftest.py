"""The images of this tree, and a store beside them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.image.boxes import RESTRICTED, Box, built
from tests.support.containers import image_name

STORE = "redis://store:6379"


@pytest.fixture(scope="session")
def worker_image() -> str:
    return built("worker")


@pytest.fixture(scope="session")
def pipeline_image() -> str:
    return built("pipeline")


@pytest.fixture
def network() -> Iterator[Any]:
    from testcontainers.core.network import Network  # noqa: PLC0415 slow to import

    with Network() as made:
        yield made


@pytest.fixture
def store(network: Any) -> Iterator[Box]:
    command = "redis-server --save '' --maxmemory-policy noeviction"
    with Box(image_name(), command, network=network, alias="store") as box:
        yield box


@pytest.fixture
def worker(worker_image: str, store: Box, network: Any) -> Iterator[Box]:
    """As a pod has it: nothing but /tmp can be written, and nothing is allowed."""
    with Box(
        worker_image,
        network=network,
        alias="worker",
        env={"ROUTEBOOK_REDIS_URL": STORE},
        ports=(9876, 8080),
        tmpfs=("/tmp",),
        **RESTRICTED,
    ) as box:
        box.wait_for_log("serves RocketMQ on")
        yield box
