"""The service, files and values that the commands of the pages find: two workers on one store, and some brokers."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from routebook_pipeline.java import find_java_home
from tests.architecture.sources import ROOT
from tests.end_to_end.documents import Step, terminal, write_redis_cli
from tests.runtime.running import Running, run
from tests.support.simulated import first_address

TLS = ("--tls-test-mode", "false", "--tls-key-path", "own/server.key", "--tls-cert-path", "own/server.pem")
ANY_PORTS = {f"ROUTEBOOK_{port}_PORT": "0" for port in ("REMOTING", "HTTP", "ADMIN")}
PROGRAMS = Path(sys.executable).parent
HOST_FOLDERS = ("opt", "srv", "mnt", "etc/redis", "etc/haproxy", "etc/systemd/system")
"""Folders below `/` to which a page writes. The commands get folders below the test's own instead."""
SEATS = {
    "DefaultCluster/brokers/broker-a/0": "127.0.0.11",
    "DefaultCluster/brokers/broker-a/1": "127.0.0.12",
    "DefaultCluster/brokers/broker-b/0": "127.0.0.13",
    "west/brokers/broker-w/0": "127.0.0.14",
}
READER, IDENTITIES, CONTEXTS = "old-pipeline", ("ci", "fleet"), ("prod", "old", "staging-2")


class Fleet:
    """What a page's commands refer to. `restore` brings back what an earlier block of the page has removed."""

    def __init__(self, store_url: str, namespace: str, folder: Path) -> None:
        self.folder = folder
        self._store_url = store_url
        self._namespace = namespace
        self._stack = ExitStack()
        self._served: Running | None = None

    def __enter__(self) -> Self:
        assert run("certs", "--out", "own", "--name", "localhost", cwd=self.folder).returncode == 0
        self._write_files()
        flags = ("--redis-url", self._store_url, "--namespace", self._namespace, "--bind-address", "127.0.0.1", *TLS)
        self.first, self.second = (
            self._stack.enter_context(Running("serve", *flags, folder=self.folder)) for _ in range(2)
        )
        self.env = self._environment()
        self._replacements = self._replaced_addresses() | self._replaced_commands()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop_served()
        finally:
            self._stack.close()

    def script(self, text: str) -> str:
        """The commands as printed, but with this fleet's addresses, folders and times."""
        longest_first = sorted(self._replacements, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self._replacements[found[0]], text)

    def restore(self, block: str) -> None:
        for name in IDENTITIES:
            self.first.delete(f"/v1/identities/{name}")
        for seat, address in SEATS.items():
            topics = {name: {"read_queues": 8, "write_queues": 8} for name in ("orders", "TopicA", "%RETRY%group")}
            body = {"address": f"{address}:10911", "timeout_ms": 600_000, "topics": topics}
            self.first.put(f"/v1/clusters/{seat}", body).raise_for_status()
        self.first.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"}).raise_for_status()
        self.first.put("/v1/settings/hold_percent", {"value": 40}).raise_for_status()
        asyncio.run(self._add_reader())
        if "token revoke" in block and "token create" not in block:
            body = {"name": IDENTITIES[0], "role": "operator"}
            httpx.post(f"{self.first.http}/v1/identities", json=body, trust_env=False).raise_for_status()
        if "routebook context" in block:
            for name in CONTEXTS:
                made = run("context", "set", name, "--url", self.first.http, cwd=self.folder, env=self.env)
                assert made.returncode == 0, made.stderr

    def serve(self, script: str) -> None:
        """Starts a service of the page, which runs until the page starts another one."""
        self.stop_served()
        kind = "up" if re.search(r"routebook up\b", script) else "serve"
        env = {**self.env, **ANY_PORTS, "ROUTEBOOK_BIND_ADDRESS": "127.0.0.1"}
        script = re.sub(r"(?=(?<!\S)\S*routebook (?:up|serve)\b)", "exec ", script, count=1)
        served = Running(kind, folder=self.folder, env=env, ports=False, program=("bash", "-e", "-c", script))
        self._served = self._stack.enter_context(served)
        port = self._served.http.rpartition(":")[2]
        self._replacements["https://localhost:8080"] = f"https://localhost:{port}"
        self._replacements["localhost:9876"] = f"localhost:{self._served.remoting.rpartition(':')[2]}"

    def demonstrate(self, script: str) -> None:
        """Starts the demonstration, which prints the address of the console, and ends it with Ctrl-C."""
        step = Step(f"exec {script}", keeps_running=True, answer="…\nConsole: …\n…\n")
        with terminal(step, self.folder / "demo", self.folder, {**self.env, **ANY_PORTS}):
            pass

    def stop_served(self) -> None:
        if self._served is not None:
            served, self._served = self._served, None
            assert served.stop() == 0, served.log

    def _environment(self) -> dict[str, str]:
        path = [str(self.folder / "bin"), str(PROGRAMS), os.environ["PATH"], "/usr/sbin"]
        found = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "HOME": str(self.folder),
            "ROUTEBOOK_URL": self.first.http,
            "ROUTEBOOK_REDIS_URL": self._store_url,
            "ROUTEBOOK_NAMESPACE": self._namespace,
            "ROUTEBOOK_LAKE": str(self.folder / "lake"),
            "ROUTEBOOK": str(PROGRAMS / "routebook"),
            "PYSPARK_PYTHON": sys.executable,
        }
        java = find_java_home()
        return found | ({"JAVA_HOME": str(java)} if java else {})

    def _replaced_addresses(self) -> dict[str, str]:
        first, second = self.first, self.second
        stores = ("127.0.0.1:6379", "store.example:6379", "10.0.0.7:6379", "routebook:PASSWORD@host:6379", "…")
        return {
            **dict.fromkeys(("http://127.0.0.1:8080", "http://names-1.example:8080", "http://rb-1:8080"), first.http),
            **dict.fromkeys(("http://names-2.example:8080", "http://rb-2:8080", "http://rb-test:8080"), second.http),
            "http://names.example:8080": first.http,
            "http://names-3.example:8080": second.http,
            "http://127.0.0.1:8081": first.admin,
            "https://names-1.example:8080": first.http.replace("http", "https"),
            "https://rb-1:8080,https://rb-2:8080": first.http.replace("http", "https"),
            **dict.fromkeys(("names-1.example:9876", "10.0.0.10:9876"), first.remoting),
            **dict.fromkeys(("names-2.example:9876", "10.0.0.9:9876"), second.remoting),
            "rb:{default}": f"rb:{{{self._namespace}}}",
            **{f"redis://{store}": self._store_url for store in stores},
        }

    def _replaced_commands(self) -> dict[str, str]:
        """Folders of the host, the times of an example, and what would download packages."""
        today = datetime.now(UTC)
        root = {f"/{name}/": f"{self.folder}/{name}/" for name in ("opt", "etc", "srv", "mnt")}
        packages = sysconfig.get_path("purelib")
        environment, pip = self.folder / "opt/routebook", "pip install --no-deps --no-build-isolation --quiet"
        inner = environment / f"lib/python3.{sys.version_info.minor}/site-packages/tests.pth"
        return {
            **root,
            "python3 -m venv /opt/routebook": f"{sys.executable} -m venv {environment} && echo {packages} > {inner}",
            "/opt/routebook/bin/pip install 'routebook[tls]'": f"{environment}/bin/{pip} {ROOT}",
            "pip install 'routebook": f"{sys.executable} -m {pip} --dry-run -e '{ROOT}",
            ".venv/bin/": f"{PROGRAMS}/",
            "make demo": "deploy/demo.sh",
            "docs/images": str(self.folder),
            "curl ": "curl --silent --show-error --fail-with-body ",
            "routebook simulate ": f"routebook simulate -n {self.first.remoting} --first-address {first_address()} ",
            **{f"--duration {shown}": "--duration 20s" for shown in ("1m", "5m")},
            "2026-05-01T02:10Z": f"{today - timedelta(hours=1):%Y-%m-%dT%H:%MZ}",
            "2026-05-01T00:00Z": f"{today - timedelta(hours=1):%Y-%m-%dT%H:%MZ}",
            "2026-05-01T02:20Z": f"{today + timedelta(minutes=1):%Y-%m-%dT%H:%MZ}",
            "2026-06-01T00:00Z": f"{today + timedelta(minutes=1):%Y-%m-%dT%H:%MZ}",
            "spark://head:7077": "local[2]",
            "/mnt/history": f"{self.folder}/lake",
        }

    def _write_files(self) -> None:
        for name in HOST_FOLDERS:
            (self.folder / name).mkdir(parents=True)
        for name in ("benchmarks", "deploy", "helm", "tests"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "bin").mkdir()
        write_redis_cli(self.folder / "bin")
        for source, name in (("ca.pem", "ca.pem"), ("server.key", "key.pem"), ("server.pem", "chain.pem")):
            shutil.copy(self.folder / "own" / source, self.folder / name)
        (self.folder / "routebook.toml").write_text("workers = 1\n")
        (self.folder / "namesrv.conf").write_text("scanNotActiveBrokerInterval = 5000\n")
        shutil.copy(ROOT / "helm/routebook/files/alerts.yaml", self.folder)

    async def _add_reader(self) -> None:
        keys = Keys(self._namespace)
        client = StoreClient(StoreUrl.parse(self._store_url), slot_key=keys.meta, timeout_ms=5000)
        await client.open()
        try:
            await client.call("HSET", keys.table("readers"), READER, "1 1")
        finally:
            await client.close()


def run_script(
    script: str, fleet: Fleet, *, seconds: int, interrupted_after: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """In bash, as a user pastes it. A command that does not end by itself gets a Ctrl-C after some seconds."""
    waits = ["timeout", "--signal=INT", "--preserve-status", str(interrupted_after)] if interrupted_after else []
    return subprocess.run(
        [*waits, "bash", "-o", "pipefail", "-c", script],
        cwd=fleet.folder,
        env=fleet.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
