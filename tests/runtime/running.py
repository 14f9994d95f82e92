"""Starts the service as users do, in its own process, and observes it from outside."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil  # type: ignore[import-untyped]

START_SECONDS = 60.0
"""A process that is not ready by this time is killed, and the test fails with its log."""
_LAST_LINE = "Ctrl-C stops everything"
_REMOTING = re.compile(r"(?:RocketMQ +|serves RocketMQ on )([^ ,\n]+:[0-9]+)")
_HTTP = re.compile(r"(?:HTTP API +|serves RocketMQ on [^ ]+ and )(https?://[^ ,\n]+)")
_ADMIN = re.compile(r"(?:health +|health and metrics )(http://[^ ,/\n]+//[^ ,/\n]+|http://[^ ,/\n]+)")


class Running:
    """`with Running("up", ...) as service:` — the process is killed at the end in any case."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        env: dict[str, str] | None = None,
        ports: bool = True,
        program: tuple[str, ...] = (sys.executable, "-m", "routebook"),
    ) -> None:
        self._program = program
        self._arguments = [
            *arguments,
            *(["--remoting-port", "0", "--http-port", "0", "--admin-port", "0"] if ports else []),
        ]
        self._log_path = folder / f"log-{len(list(folder.glob('log-*')))}"
        self._env = {**os.environ, **(env or {})}
        self._folder = folder
        self._output = ""
        self.remoting = ""
        self.http = ""
        self.admin = ""

    def __enter__(self) -> Self:
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._program, *self._arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                cwd=self._folder,
                start_new_session=True,
            )
        try:
            self._wait_for_start_line()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    @property
    def output(self) -> str:
        """Standard output until the process was ready."""
        return self._output

    def stop(self, one: signal.Signals = signal.SIGTERM, *, within: float = 15.0) -> int:
        """Sends the signal and returns the exit code."""
        self.process.send_signal(one)
        return self.process.wait(within)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def get(self, path: str, **params: str | int) -> httpx.Response:
        return httpx.get(self.http + path, params=params, timeout=10, trust_env=False)

    def put(self, path: str, body: object) -> httpx.Response:
        return httpx.put(self.http + path, json=body, timeout=10, trust_env=False)

    def delete(self, path: str) -> httpx.Response:
        return httpx.delete(self.http + path, timeout=10, trust_env=False)

    def get_admin(self, path: str) -> httpx.Response:
        return httpx.get(self.admin + path, timeout=10, trust_env=False)

    def register(self, broker: str = "broker-a", *topics: str) -> None:
        queues = {"read_queues": 8, "write_queues": 8}
        body = {"address": "127.0.0.11:10911", "topics": dict.fromkeys(topics or ("TopicA",), queues)}
        self.put(f"/v1/clusters/demo/brokers/{broker}/0", body).raise_for_status()

    def children(self, word: str = "") -> list[int]:
        """Ids of direct child processes whose command line contains `word`."""
        return [pid for pid, parent, command in processes() if parent == self.process.pid and word in command]

    def descendants(self) -> list[int]:
        return descendants(self.process.pid)

    def _wait_for_start_line(self) -> None:
        assert self.process.stdout
        watchdog = threading.Timer(START_SECONDS, self.process.kill)
        watchdog.start()
        try:
            self._read_start_lines()
        finally:
            watchdog.cancel()

    def _read_start_lines(self) -> None:
        assert self.process.stdout
        while not (self.http and self.admin and (self._arguments[0] != "up" or _LAST_LINE in self._output)):
            line = self.process.stdout.readline().decode()
            if not line:
                raise AssertionError(f"ended with {self.process.wait(5)} before it was ready: {self._output}{self.log}")
            self._output += line
            if found := _REMOTING.search(line):
                self.remoting = found[1]
            if found := _HTTP.search(line):
                self.http = found[1]
            if found := _ADMIN.search(line):
                self.admin = found[1]


def run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "routebook", *arguments],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def processes() -> list[tuple[int, int, str]]:
    """Id, parent and command line of every process of this machine that is not a zombie."""
    found = [process.info for process in psutil.process_iter(["pid", "ppid", "status", "cmdline"])]
    return [
        (info["pid"], info["ppid"], " ".join(info["cmdline"]))
        for info in found
        if info["cmdline"] and info["status"] != psutil.STATUS_ZOMBIE
    ]


def descendants(parent: int) -> list[int]:
    """Ids of all descendants of a process."""
    listed = processes()
    found = [parent]
    for one in found:
        found += [pid for pid, its_parent, _ in listed if its_parent == one]
    return found[1:]


def eventually_ended(pids: list[int], *, within: float = 30.0) -> bool:
    deadline = time.monotonic() + within
    while left := [row for row in processes() if row[0] in pids]:
        if time.monotonic() > deadline:
            print(left)
            return False
        time.sleep(0.05)
    return True
