"""Compose accepts the compose file, and the services that it starts work together.

The images are made from the distribution's packages and passed in variables, as docs/compose.md describes for machines
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
from tests.image.containers import image_from_packages
from tests.support.containers import image_name
from tests.support.ports import free_ports
from tests.support.waiting import until

FILE = ROOT / "deploy" / "compose.yaml"
CHART = ROOT / "helm" / "routebook"
SERVICES = ("store", "worker-1", "worker-2", "worker-3", "balancer", "prometheus")
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


def test_compose_accepts_the_file() -> None:
    done = compose("config", "--quiet")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_default_worker_image_is_that_of_make_image() -> None:
    assert f"${{ROUTEBOOK_IMAGE:-routebook:{__version__}}}" in FILE.read_text()


def test_the_store_image_equals_the_charts() -> None:
    (charts,) = re.findall(r"^    image: (valkey/\S+)$", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert f"image: ${{STORE_IMAGE:-{charts}}}" in FILE.read_text()


def test_prometheus_accepts_its_configuration() -> None:
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
class ComposeProject:
    """The running services, under a project name of their own."""

    environment: dict[str, str]
    name: str

    def compose(self, *arguments: str) -> None:
        done = compose("-p", self.name, *arguments, env=self.environment)
        assert done.returncode == 0, done.stderr

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.environment[port]}"


@pytest.fixture(scope="module")
def images(worker_image: str) -> dict[str, str]:
    """Depends on `worker_image` so that the test is skipped where no engine can build."""
    packaged = {
        variable: image_from_packages(f"{package}:debian", "deploy/build_package_image.sh", package)
        for variable, package in PACKAGED.items()
    }
    return {**packaged, "STORE_IMAGE": image_name(), "ROUTEBOOK_IMAGE": worker_image}


@pytest.fixture
def project(images: dict[str, str]) -> Iterator[ComposeProject]:
    """Starts all services except Grafana; removes them with their volumes at the end."""
    names = ("ROCKETMQ_PORT", "HTTP_PORT", "HAPROXY_PORT", "PROMETHEUS_PORT")
    ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
    project = ComposeProject({**images, **ports}, f"routebook-test-{os.getpid()}")
    try:
        project.compose("up", "--detach", *SERVICES)
        yield project
    finally:
        project.compose("down", "--volumes", "--timeout", "15")


@pytest.mark.slow
@pytest.mark.docker
async def test_it_works_as_documented(project: ComposeProject) -> None:
    """Three workers answer behind the balancer and are scraped, also while one is replaced and without the store."""
    body = {"address": "127.0.0.11:10911", "timeout_ms": 600_000, "topics": {"TopicA": {}}}
    service, prometheus = project.url("HTTP_PORT"), project.url("PROMETHEUS_PORT")
    route = f"{service}/v1/routes/TopicA"
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        await until(lambda: answers_ok(client, f"{service}/v1/status"), timeout_s=START_SECONDS, every_s=0.5)
        (await client.put(f"{service}/v1/clusters/demo/brokers/broker-a/0", json=body)).raise_for_status()
        await until(lambda: answers_ok(client, route, times=6))
        # The workers listen on all addresses, so administrative requests need the token.
        assert (await client.delete(f"{service}/v1/topics/TopicA")).status_code == httpx.codes.UNAUTHORIZED
        await until(lambda: scrapes_all(client, prometheus), timeout_s=START_SECONDS, every_s=0.5)

        restarting = asyncio.create_task(asyncio.to_thread(project.compose, "restart", "worker-1"))
        answers = 0
        while not restarting.done() or answers < 50:
            assert (await client.get(route)).status_code == httpx.codes.OK
            answers += 1
            await asyncio.sleep(0.05)
        await restarting

        await asyncio.to_thread(project.compose, "stop", "store")
        await until(lambda: is_stale(client, route))
        assert await answers_ok(client, route, times=6)
        refused = await client.put(f"{service}/v1/clusters/demo/brokers/broker-b/0", json=body)
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE


async def answers_ok(client: httpx.AsyncClient, url: str, *, times: int = 1) -> bool:
    """Whether `times` requests in a row succeed; the balancer spreads them over the workers."""
    try:
        return all([(await client.get(url)).status_code == httpx.codes.OK for _ in range(times)])
    except httpx.HTTPError:
        return False


async def is_stale(client: httpx.AsyncClient, url: str) -> bool:
    return "X-Routebook-Stale-Seconds" in (await client.get(url)).headers


async def scrapes_all(client: httpx.AsyncClient, prometheus: str) -> bool:
    """Whether Prometheus has scraped all workers, each with a complete table."""
    try:
        answer = await client.get(f"{prometheus}/api/v1/query", params={"query": "routebook_replica_complete == 1"})
    except httpx.HTTPError:
        return False
    instances = {series["metric"]["instance"] for series in answer.json()["data"]["result"]}
    return instances == {"worker-1:8081", "worker-2:8081", "worker-3:8081"}
