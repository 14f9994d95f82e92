"""The compose file: read by compose itself, and what it starts answers.

Its images are named by variables and made from the distribution's packages, as docs/compose.md has it for a machine
without a registry.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from routebook import __version__
from tests.architecture.sources import ROOT
from tests.balancing.site import free_ports
from tests.image.boxes import from_packages
from tests.support.containers import image_name
from tests.support.waiting import until

FILE = ROOT / "deploy" / "compose.yaml"
CHART = ROOT / "helm" / "routebook"
RUN = ("store", "worker-1", "worker-2", "worker-3", "balancer", "prometheus")
START_SECONDS = 60.0
PACKAGED = {"HAPROXY_IMAGE": "haproxy", "PROMETHEUS_IMAGE": "prometheus"}


def compose(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = compose_command()
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [*command, "-f", FILE, *arguments], capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def compose_command() -> list[str]:
    """As a program of its own, or as a plug-in of the Docker client; without either, the test is skipped."""
    if program := shutil.which("docker-compose"):
        return [program]
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("neither docker-compose nor docker is installed")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker is installed without its compose plug-in")
    return [docker, "compose"]


def test_compose_understands_it() -> None:
    done = compose("config", "--quiet")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_names_the_image_that_make_image_makes() -> None:
    assert f"${{ROUTEBOOK_IMAGE:-routebook:{__version__}}}" in FILE.read_text()


def test_its_store_is_the_charts() -> None:
    (charts,) = re.findall(r"^    image: (valkey/\S+)$", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert f"image: ${{STORE_IMAGE:-{charts}}}" in FILE.read_text()


def test_prometheus_understands_its_part() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for kind, path in (
        ("config", ROOT / "deploy" / "prometheus.yml"),
        ("rules", CHART / "files" / "alerts.yaml"),
    ):
        options = ["--syntax-only"] if kind == "config" else []
        done = subprocess.run(
            [promtool, "check", kind, *options, path], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Laptop:
    """What was started, under a project's name of its own."""

    environment: dict[str, str]
    project: str

    def compose(self, *arguments: str) -> None:
        done = compose("-p", self.project, *arguments, env=self.environment)
        assert done.returncode == 0, done.stderr

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.environment[port]}"


@pytest.fixture(scope="module")
def images(worker_image: str) -> dict[str, str]:
    """After the worker's: an engine that builds is there, and so is the store's image."""
    made = {
        variable: from_packages(f"{package}:debian", "deploy/build_package_image.sh", package)
        for variable, package in PACKAGED.items()
    }
    return {**made, "STORE_IMAGE": image_name(), "ROUTEBOOK_IMAGE": worker_image}


@pytest.fixture
def laptop(images: dict[str, str]) -> Iterator[Laptop]:
    """Everything but Grafana; removed with its volumes."""
    names = ("ROCKETMQ_PORT", "HTTP_PORT", "HAPROXY_PORT", "PROMETHEUS_PORT")
    ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
    started = Laptop({**images, **ports}, f"routebook-test-{os.getpid()}")
    try:
        started.compose("up", "--detach", *RUN)
        yield started
    finally:
        started.compose("down", "--volumes", "--timeout", "15")


@pytest.mark.slow
@pytest.mark.docker
async def test_the_page_says_what_it_does(laptop: Laptop) -> None:
    """Three workers answer behind the balancer and are scraped, also while one is replaced and without the store."""
    body = {"address": "127.0.0.11:10911", "timeout_ms": 600_000, "topics": {"TopicA": {}}}
    service, prometheus = laptop.url("HTTP_PORT"), laptop.url("PROMETHEUS_PORT")
    route = f"{service}/v1/routes/TopicA"
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        await until(lambda: is_there(client, f"{service}/v1/status"), timeout_s=START_SECONDS, every_s=0.5)
        (await client.put(f"{service}/v1/clusters/demo/brokers/broker-a/0", json=body)).raise_for_status()
        await until(lambda: is_there(client, route, times=6))
        # Who comes through the balancer is not on loopback, and nobody's administrator.
        assert (await client.delete(f"{service}/v1/topics/TopicA")).status_code == httpx.codes.FORBIDDEN
        await until(lambda: scrapes_all(client, prometheus), timeout_s=START_SECONDS, every_s=0.5)

        restarting = asyncio.create_task(asyncio.to_thread(laptop.compose, "restart", "worker-1"))
        answers = 0
        while not restarting.done() or answers < 50:
            assert (await client.get(route)).status_code == httpx.codes.OK
            answers += 1
            await asyncio.sleep(0.05)
        await restarting

        await asyncio.to_thread(laptop.compose, "stop", "store")
        await until(lambda: is_stale(client, route))
        assert await is_there(client, route, times=6)
        refused = await client.put(f"{service}/v1/clusters/demo/brokers/broker-b/0", json=body)
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE


async def is_there(client: httpx.AsyncClient, url: str, *, times: int = 1) -> bool:
    """Several times: the balancer asks the workers in turn."""
    try:
        return all([(await client.get(url)).status_code == httpx.codes.OK for _ in range(times)])
    except httpx.HTTPError:
        return False


async def is_stale(client: httpx.AsyncClient, url: str) -> bool:
    return "X-Routebook-Stale-Seconds" in (await client.get(url)).headers


async def scrapes_all(client: httpx.AsyncClient, prometheus: str) -> bool:
    """All workers have told it that their table is whole."""
    try:
        answer = await client.get(f"{prometheus}/api/v1/query", params={"query": "routebook_replica_complete == 1"})
    except httpx.HTTPError:
        return False
    instances = {one["metric"]["instance"] for one in answer.json()["data"]["result"]}
    return instances == {"worker-1:8081", "worker-2:8081", "worker-3:8081"}
