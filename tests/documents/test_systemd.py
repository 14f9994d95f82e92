"""docs/systemd.md: the files of deploy/systemd work together, as far as one machine can show it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from routebook.settings import load
from routebook.settings.catalogue import all_settings
from routebook.store.embedded import find_server
from tests.architecture.sources import ROOT
from tests.balancing.balanced_service import BalancedService, Ports, haproxy_or_skip, replaced
from tests.runtime.running import Running
from tests.support.ports import free_port
from tests.support.topologies import MASTER, SentinelTrio, ask, kill
from tests.support.waiting import wait_until

FILES = ROOT / "deploy" / "systemd"
PAGE = (ROOT / "docs" / "systemd.md").read_text()
PATH = "/v1/clusters/DefaultCluster/brokers/broker-a/0"
FAILOVER_S = 60.0


def unit() -> dict[str, list[str]]:
    """Key -> values of the unit, comments left out."""
    found: dict[str, list[str]] = {}
    for line in (FILES / "routebook.service").read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def assignments(path: Path, separator: str) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.partition(separator) for line in lines]
    return {key: value for key, _, value in pairs}


def balancer_configuration() -> str:
    """deploy/haproxy.cfg after the page's own `sed` command."""
    (command,) = re.findall(r"^sed -e .*?(?=> /etc)", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """It also checks that programs exist, so the unit gets one that does."""
    text = (FILES / "routebook.service").read_text().replace("/opt/routebook/bin/routebook", sys.executable)
    (tmp_path / "routebook.service").write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "routebook.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in f"{done.stdout}{done.stderr}".splitlines() if "routebook" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_unit_the_settings_and_the_page_name_the_same_files() -> None:
    (start,) = unit()["ExecStart"]
    assert start == "/opt/routebook/bin/routebook serve -c /etc/routebook/routebook.toml"
    assert unit()["EnvironmentFile"] == ["/etc/routebook/routebook.env"]
    for name in ("routebook.toml", "routebook.env", "routebook.service", "store.conf", "sentinel.conf"):
        assert f"deploy/systemd/{name}" in PAGE


def test_every_setting_of_the_files_exists_and_fits_the_others() -> None:
    loaded = load({}, assignments(FILES / "routebook.env", "="), FILES / "routebook.toml", "serve")
    assert loaded.settings.remoting_port == 19876
    assert set(tomllib.loads((FILES / "routebook.toml").read_text())) <= set(all_settings())
    drain_s = loaded.settings.drain_ms / 1000
    assert drain_s < int(unit()["TimeoutStopSec"][0]), "systemd would kill a worker that drains"


def test_haproxy_accepts_the_configuration(tmp_path: Path) -> None:
    haproxy_or_skip()
    text = balancer_configuration()
    for number in (1, 2, 3):
        assert f"names-{number}.example:19876 check" in text
        assert f"names-{number}.example:18080 check" in text
    (tmp_path / "haproxy.cfg").write_text(text)
    command = [str(shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")), "-c", "-f", "haproxy.cfg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sentinel_starts_with_its_file(tmp_path: Path) -> None:
    port = free_port()
    text = (FILES / "sentinel.conf").read_text().replace("names-1.example", "127.0.0.1")
    (tmp_path / "sentinel.conf").write_text(text.replace("port 26379", f"port {port}\nbind 127.0.0.1\ndir {tmp_path}"))
    command = [str(find_server()), str(tmp_path / "sentinel.conf"), "--sentinel"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as sentinel:
        try:
            wait_until(lambda: answers(port), "the sentinel answers")
            assert ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1] == "6379"
        finally:
            sentinel.terminate()


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "PING"))
    except Exception:
        return False


class ThreeHosts(BalancedService):
    """Three workers, each started with the command line of the unit and the settings of the page."""

    def __init__(self, store_url: str, folder: Path) -> None:
        super().__init__(store_url, "default", folder)
        settings = replaced(
            (FILES / "routebook.toml").read_text(), "10.0.0.11/32,10.0.0.12/32,10.0.0.13/32", "127.0.0.0/8"
        )
        settings = replaced(settings, "workers = 2", "workers = 1")
        (folder / "routebook.toml").write_text(settings)
        self._environment = {**assignments(FILES / "routebook.env", "="), "ROUTEBOOK_REDIS_URL": store_url}
        self.token = self._environment["ROUTEBOOK_ADMIN_TOKEN"]

    def _start_worker(self, ports: Ports) -> Running:
        _, *words = unit()["ExecStart"][0].replace("/etc/routebook", str(self._folder)).split()
        flags = (*words, *ports.flags, "--bind-address", "127.0.0.1", "--admin-host", "127.0.0.1")
        return self._stack.enter_context(Running(*flags, folder=self._folder, ports=False, env=self._environment))

    def _template(self) -> str:
        text = re.sub(r"names-([123])\.example:19876", r"worker-\1:9876", balancer_configuration())
        return re.sub(r"names-([123])\.example:18080", r"worker-\1:8080", text)


@pytest.mark.slow
def test_three_hosts_survive_the_loss_of_a_worker_and_of_the_primary(tmp_path: Path) -> None:
    haproxy_or_skip()
    options = assignments(FILES / "store.conf", " ")
    with SentinelTrio(options, replicas=2) as store, ThreeHosts(store.url, tmp_path) as service:
        client = httpx.Client(base_url=service.http, trust_env=False, timeout=10)
        body = {"address": "127.0.0.11:10911", "topics": {"orders": {}}, "timeout_ms": 600_000}
        assert client.put(PATH, json=body).status_code == 200
        service.workers[0].process.send_signal(signal.SIGKILL)
        kill(store.primary)
        # Whatever the store does, each worker answers from its memory.
        for _ in range(10):
            answer = client.get("/v1/routes/orders")
            assert answer.status_code == 200, answer.text
        body["topics"] = {"orders": {}, "bills": {}}
        wait_until(lambda: client.put(PATH, json=body).status_code == 200, "the new primary", timeout_s=FAILOVER_S)
        wait_until(lambda: client.get("/v1/routes/bills").status_code == 200, "the new topic")
        removed = client.delete(PATH, headers={"Authorization": f"Bearer {service.token}"})
        assert removed.status_code == 200
        client.close()
