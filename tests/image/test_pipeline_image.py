"""The pipeline image answers a question from the store's history, with Spark on a read-only root file system."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.image.conftest import STORE
from tests.image.containers import RESTRICTED, Container
from tests.image.test_worker_image import BODY_A, BROKER_A, http

pytestmark = [pytest.mark.slow, pytest.mark.docker]


@pytest.fixture
def new_volume() -> Iterator[str]:
    """Name of a volume that does not exist yet; the engine creates it with the first container that mounts it."""
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415 slow to import

    name = f"routebook-test-lake-{os.getpid()}"
    yield name
    engine = docker.from_env()
    engine.volumes.get(name).remove()
    engine.close()


def test_the_pipeline_answers_from_a_workers_history(
    pipeline_image: str, worker: Container, network: Any, new_volume: str
) -> None:
    from docker.types import Mount  # type: ignore[import-untyped]  # noqa: PLC0415 slow to import

    with http(worker) as client:
        assert client.put(BROKER_A, json=BODY_A).status_code == httpx.codes.OK
    # The container sleeps, and each command is run in it as a job would run it.
    with Container(
        pipeline_image,
        network=network,
        env={"ROUTEBOOK_REDIS_URL": STORE, "ROUTEBOOK_LAKE": "/lake"},
        tmpfs=("/tmp",),
        mounts=[Mount("/lake", new_volume)],
        entrypoint=["sleep", "600"],
        **RESTRICTED,
    ) as pipeline:
        small = ("--master", "local[1]", "--conf", "spark.driver.memory=1g")
        pipeline.output("routebook", "pipeline", "ingest", "--once", *small)
        doctor = pipeline.output("routebook", "pipeline", "doctor")
        assert "ok       java       version 21" in doctor
        assert "ok       store" in doctor
        assert "ok       lake" in doctor
        answer = pipeline.output("routebook", "pipeline", "route-at", "TopicA", "--json", *small)
        assert "127.0.0.11:10911" in answer
        assert pipeline.output("id", "-u").strip() == "10001"


def test_the_default_command_is_doctor(pipeline_image: str, network: Any) -> None:
    with Container(pipeline_image, network=network, tmpfs=("/tmp",), **RESTRICTED) as doctor:
        doctor.wait_for_log("Name it with --lake")
        assert "ok       pyspark" in doctor.log
