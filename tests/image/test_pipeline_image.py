"""The image of the pipeline: Spark on a read-only root, from the history in the store to an answer."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.image.boxes import RESTRICTED, Box
from tests.image.conftest import STORE
from tests.image.test_worker_image import BODY_A, BROKER_A, http

pytestmark = [pytest.mark.slow, pytest.mark.docker]


@pytest.fixture
def new_volume() -> Iterator[str]:
    """A name that the engine has never heard: the volume is made when a container first wants it."""
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415 slow to import

    name = f"routebook-test-lake-{os.getpid()}"
    yield name
    engine = docker.from_env()
    engine.volumes.get(name).remove()
    engine.close()


def test_answers_from_the_history_of_a_worker(pipeline_image: str, worker: Box, network: Any, new_volume: str) -> None:
    from docker.types import Mount  # type: ignore[import-untyped]  # noqa: PLC0415 slow to import

    with http(worker) as client:
        assert client.put(BROKER_A, json=BODY_A).status_code == httpx.codes.OK
    # A shell keeps it open between commands; each is what a job would run.
    with Box(
        pipeline_image,
        network=network,
        env={"ROUTEBOOK_REDIS_URL": STORE, "ROUTEBOOK_LAKE": "/lake"},
        tmpfs=("/tmp",),
        mounts=[Mount("/lake", new_volume)],
        entrypoint=["sleep", "600"],
        **RESTRICTED,
    ) as pipeline:
        small = ("--master", "local[1]", "--conf", "spark.driver.memory=1g")
        pipeline.said("routebook", "pipeline", "ingest", "--once", *small)
        doctor = pipeline.said("routebook", "pipeline", "doctor")
        assert "ok       java       version 21" in doctor
        assert "ok       store" in doctor
        assert "ok       lake" in doctor
        answer = pipeline.said("routebook", "pipeline", "route-at", "TopicA", "--json", *small)
        assert "127.0.0.11:10911" in answer
        assert pipeline.said("id", "-u").strip() == "10001"


def test_doctor_is_what_it_does_when_told_nothing(pipeline_image: str, network: Any) -> None:
    with Box(pipeline_image, network=network, tmpfs=("/tmp",), **RESTRICTED) as doctor:
        doctor.wait_for_log("Name it with --lake")
        assert "ok       pyspark" in doctor.log
