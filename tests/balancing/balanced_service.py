"""Three workers on one store behind a real HAProxy, with the configuration of deploy/haproxy.cfg."""

import asyncio
import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest

from tests.architecture.sources import ROOT
from tests.runtime.running import Running
from tests.support.ports import free_ports

CONFIGURATION = ROOT / "deploy" / "haproxy.cfg"
WORKERS = 3
BROKER_PROCESSES = 3
DRAIN_MS = 3000
START_SECONDS = 15.0


class Ports:
    """The ports of one worker; its replacement uses the same."""

    def __init__(self) -> None:
        self.remoting, self.http, self.admin = free_ports(3)

    @property
    def flags(self) -> list[str]:
        return [
            *("--remoting-port", str(self.remoting)),
            *("--http-port", str(self.http)),
            *("--admin-port", str(self.admin)),
        ]


class BalancedService:
    """`with BalancedService(store_url, namespace, folder) as service:` starts all processes and ends them."""

    def __init__(self, store_url: str, namespace: str, folder: Path) -> None:
        self._serve = ["serve", "--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1"]
        self._serve += ["--drain-ms", str(DRAIN_MS), "--proxy-from", "127.0.0.0/8"]
        self._folder = folder
        self._ports = [Ports() for _ in range(WORKERS)]
        self._stack = ExitStack()
        self._rocketmq, self._http, self._status_port = free_ports(3)
        self.workers: list[Running] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self.workers = [self._start_worker(ports) for ports in self._ports]
            self._start_haproxy()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def rocketmq(self) -> str:
        return f"127.0.0.1:{self._rocketmq}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._http}"

    def replace(self, number: int) -> None:
        """Starts a worker in place of one that has ended. Returns when HAProxy considers it up."""
        self.workers[number] = self._start_worker(self._ports[number])
        self.wait_for_state(number, "UP")

    def state_of(self, number: int, backend: str = "rocketmq") -> str:
        """HAProxy's state of the worker: UP, DOWN, or a transition between them."""
        return self.row_of(number, backend)["status"]

    def total_connections(self, number: int, backend: str = "rocketmq") -> int:
        return int(self.row_of(number, backend)["stot"])

    def open_connections(self, number: int, backend: str = "rocketmq") -> int:
        return int(self.row_of(number, backend)["scur"])

    def row_of(self, number: int, backend: str) -> dict[str, str]:
        text = httpx.get(f"http://127.0.0.1:{self._status_port}/;csv", timeout=5, trust_env=False).text
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        return next(row for row in rows if row["pxname"] == backend and row["svname"] == f"worker-{number + 1}")

    def wait_for_state(self, number: int, wanted: str) -> float:
        """Returns after how many seconds HAProxy had this state on both ports."""
        start = time.monotonic()
        while not all(self.state_of(number, backend).startswith(wanted) for backend in ("rocketmq", "http")):
            assert time.monotonic() < start + START_SECONDS, f"not {wanted} within {START_SECONDS:g} s"
            time.sleep(0.02)
        return time.monotonic() - start

    def _start_worker(self, ports: Ports) -> Running:
        return self._stack.enter_context(Running(*self._serve, *ports.flags, folder=self._folder, ports=False))

    def _start_haproxy(self) -> None:
        written = self._folder / "haproxy.cfg"
        written.write_text(self._configuration())
        log = self._stack.enter_context((self._folder / "haproxy.log").open("wb"))
        process = subprocess.Popen([_haproxy(), "-db", "-f", written], stdout=log, stderr=log)
        self._stack.callback(_end, process)
        self._wait_until_listening()
        for number in range(WORKERS):
            self.wait_for_state(number, "UP")

    def _template(self) -> str:
        return CONFIGURATION.read_text()

    def _configuration(self) -> str:
        """deploy/haproxy.cfg with the addresses and ports of this test; here each worker has its own admin port."""
        text = self._template()
        for name, port in (("9876", self._rocketmq), ("8080", self._http), ("8404", self._status_port)):
            text = replaced(text, f"bind :{name}\n", f"bind 127.0.0.1:{port}\n")
        text = replaced(text, "default-server port 8081 ", "default-server ")
        for number, ports in enumerate(self._ports, start=1):
            check = f"check port {ports.admin}\n"
            text = replaced(text, f" worker-{number}:9876 check\n", f" 127.0.0.1:{ports.remoting} {check}")
            text = replaced(text, f" worker-{number}:8080 check\n", f" 127.0.0.1:{ports.http} {check}")
        return text

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._status_port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "haproxy.log").read_text()
                time.sleep(0.02)
            else:
                return


class Brokers:
    """Broker processes that register every second through the balancer and listen at the addresses they register."""

    def __init__(self, name_server: str, processes: int = BROKER_PROCESSES, each: int = 4) -> None:
        self._name_server = name_server
        self.names = [[f"broker-{process}-{index}" for index in range(each)] for process in range(processes)]
        self.all = [name for names in self.names for name in names]
        self.addresses: dict[str, str] = {}
        """Address by name, once they have started."""
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._stack.close)

    def _start(self) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "tests.faults.broker_process", self._name_server, "1"]
        for names in self.names:
            process = subprocess.Popen([*command, *names], stdout=subprocess.PIPE, cwd=ROOT, env=env)
            self._stack.callback(_end, process)
            assert process.stdout
            self.addresses.update(zip(names, process.stdout.readline().decode().split(), strict=True))


def haproxy_or_skip() -> None:
    if not _haproxy():
        pytest.skip("haproxy is not installed")


def _haproxy() -> str:
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin") or ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout:
        process.stdout.close()


def replaced(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)
