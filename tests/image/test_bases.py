"""An image built on a base with package manager and Perl, like the public base, contains neither of them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.conftest import STORE
from tests.image.containers import RESTRICTED, Container, build_image, build_tools, image_from_packages, setuid_programs

pytestmark = [pytest.mark.slow, pytest.mark.docker]

FULL_BASE = "routebook-base:with-package-manager"
TEST_TAG = f"routebook-test:{os.getpid()}"


@pytest.fixture(scope="module")
def full_base(worker_image: str) -> str:
    """Depends on `worker_image` so that the test is skipped where no engine can build."""
    return image_from_packages(FULL_BASE, "deploy/build_python_base.sh", VARIANT="minbase")


@pytest.fixture(scope="module")
def image_on_full_base(full_base: str) -> Iterator[str]:
    yield build_image("worker", BASE=full_base, TAG=TEST_TAG)
    subprocess.run(["docker", "image", "rm", TEST_TAG], capture_output=True, check=True)


def test_the_base_contains_a_package_manager_and_setuid_programs(full_base: str, network: Any) -> None:
    with Container(full_base, network=network, entrypoint=["sleep", "60"]) as container:
        assert {Path(found).name for found in build_tools(container)} >= {"apt", "apt-get", "dpkg", "dpkg-deb", "perl"}
        assert setuid_programs(container) != []


def test_the_image_contains_neither_and_works(image_on_full_base: str, store: Container, network: Any) -> None:
    with Container(
        image_on_full_base, network=network, env={"ROUTEBOOK_REDIS_URL": STORE}, tmpfs=("/tmp",), **RESTRICTED
    ) as worker:
        assert build_tools(worker) == []
        assert setuid_programs(worker) == []
        worker.wait_for_health("healthy")
        assert worker.output("routebook", "brokers") == "(none)\n"
        assert worker.terminate() == 0
