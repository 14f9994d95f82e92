"""The servers under load, each in its own process on a free port, terminated with the benchmark."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from routebook.store.embedded import EmbeddedStore
from tests.conformance.jars import UnavailableError, jars
from tests.support.ports import free_port

STARTUP_SECONDS = 60
APACHE_VERSION = "5.5.0"
JAVA_HEAP = "1g"
QUIET_LOGS = '<configuration><root level="WARN"/></configuration>'


@dataclass(frozen=True)
class Running:
    """A server: its port, and the process whose CPU time and memory are measured."""

    name: str
    port: int
    process: int
    store_process: int = 0
    """The store of a Routebook worker; its work for a registration counts too."""

    def cpu_seconds(self) -> float:
        """CPU time of all threads, including those that ended."""
        return process_cpu_seconds(self.process)

    def with_store_cpu_seconds(self) -> float:
        return self.cpu_seconds() + (process_cpu_seconds(self.store_process) if self.store_process else 0.0)

    def peak_mib(self) -> float:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.process}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


def process_cpu_seconds(process: int) -> float:
    """Reads the CPU clock of another process (see clock_getcpuclockid); /proc/PID/stat has steps of 10 ms."""
    return time.clock_gettime(~process << 3 | 2)


def find_apache(named: Path | None) -> Path | str:
    """The folder with the jars, or the reason why there is none."""
    if named:
        return named if any(named.glob("rocketmq-namesrv-*.jar")) else f"{named} holds no rocketmq-namesrv-*.jar"
    try:
        return jars(APACHE_VERSION, "namesrv")
    except UnavailableError as reason:
        return f"it {reason}"


@contextmanager
def apache(lib: Path) -> Iterator[Running]:
    """Runs mqnamesrv from the jars in a folder, in its own home."""
    java = shutil.which("java") or "java"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="namesrv-") as folder:
        home = Path(folder)
        (home / "conf").mkdir()
        (home / "conf" / "logback_namesrv.xml").write_text(QUIET_LOGS)
        (home / "namesrv.conf").write_text(f"listenPort={port}\n")
        command = [java, f"-Xms{JAVA_HEAP}", f"-Xmx{JAVA_HEAP}", "-XX:+UseG1GC", f"-Duser.home={home}"]
        command += ["-cp", f"{lib}/*", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "namesrv.conf")]
        with _process(command, {**os.environ, "ROCKETMQ_HOME": str(home)}, home / "output") as process:
            _wait_for_port(port, process, home / "output")
            yield Running("Apache", port, process.pid)


@contextmanager
def routebook(
    checkout: Path | None = None, *options: str, http_port: int = 0, shared: EmbeddedStore | None = None
) -> Iterator[Running]:
    """Runs one worker, from this checkout or another one with a .venv, on its own store or on a shared one. Settings
    have their defaults unless the options of `serve` say otherwise.
    """
    python = str(checkout / ".venv/bin/python") if checkout else sys.executable
    name = checkout.name if checkout else "Routebook"
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="routebook-") as folder,
        nullcontext(shared) if shared else EmbeddedStore(None) as store,
    ):
        command = [python, "-m", "routebook", "serve", "--redis-url", store.url, "--bind-address", "127.0.0.1"]
        command += ["--remoting-port", str(port), "--http-port", str(http_port), "--admin-port", "0"]
        command += ["--log-level", "warning", *options]
        output = Path(folder) / "output"
        with _process(command, dict(os.environ), output) as process:
            _wait_for_port(port, process, output)
            yield Running(name, port, process.pid, store.process_id)


@contextmanager
def echo(answer: bytes) -> Iterator[Running]:
    command = [sys.executable, str(Path(__file__).with_name("echo.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(answer)
        process.stdin.close()
        yield Running("echo", int(process.stdout.readline()), process.pid)
    finally:
        _end(process)


@contextmanager
def _process(command: list[str], environment: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def command_of(process: subprocess.Popen[bytes]) -> str:
    return " ".join(process.args) if isinstance(process.args, list) else str(process.args)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{command_of(process)} ended with {process.returncode}:\n{output.read_text()[-2000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{command_of(process)} does not listen on {port}:\n{output.read_text()[-2000:]}")
