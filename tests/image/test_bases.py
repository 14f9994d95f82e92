"""The image on a base with the package manager and its Perl, as the public one has them: nothing of either is left."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.boxes import RESTRICTED, Box, built, from_packages, makers_of_root, tools_in
from tests.image.conftest import STORE

pytestmark = [pytest.mark.slow, pytest.mark.docker]

FULL_BASE = "routebook-base:with-package-manager"
TRIAL = f"routebook-trial:{os.getpid()}"


@pytest.fixture(scope="module")
def full_base(worker_image: str) -> str:
    """After the other image: an engine that builds is there."""
    return from_packages(FULL_BASE, "deploy/build_python_base.sh", VARIANT="minbase")


@pytest.fixture(scope="module")
def image_on_full_base(full_base: str) -> Iterator[str]:
    yield built("worker", BASE=full_base, TAG=TRIAL)
    subprocess.run(["docker", "image", "rm", TRIAL], capture_output=True, check=True)


def test_the_base_has_what_the_image_must_not_have(full_base: str, network: Any) -> None:
    with Box(full_base, network=network, entrypoint=["sleep", "60"]) as box:
        assert {Path(found).name for found in tools_in(box)} >= {"apt", "apt-get", "dpkg", "dpkg-deb", "perl"}
        assert makers_of_root(box) != []


def test_nothing_of_it_is_left_and_the_worker_works(image_on_full_base: str, store: Box, network: Any) -> None:
    with Box(
        image_on_full_base, network=network, env={"ROUTEBOOK_REDIS_URL": STORE}, tmpfs=("/tmp",), **RESTRICTED
    ) as worker:
        assert tools_in(worker) == []
        assert makers_of_root(worker) == []
        worker.wait_for_health("healthy")
        assert worker.said("routebook", "brokers") == "(none)\n"
        assert worker.terminate() == 0
