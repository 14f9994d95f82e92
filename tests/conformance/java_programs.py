"""Small Java programs that use RocketMQ's clients. They are started from source and take one command per line."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.java_processes import START_SECONDS, home_of, java_command

SOURCES = Path(__file__).parent / "java"


class Program:
    """Answers each command with some lines and a last one that begins with "done". Ends with its standard input."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = home_of(folder)
        self._command = list(command)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ", "NAMESRV"))}
        self._env |= {"ROCKETMQ_HOME": str(folder), **(env or {})}
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Self:
        self._errors = (self._folder / "errors").open("wb")
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._env,
            cwd=self._folder,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="java output")
        self._reader.start()
        try:
            self.read()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()
        self._errors.close()

    def send(self, line: str) -> None:
        """Sends a command without waiting for its answer."""
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def read(self, until: str = "done", within: float = START_SECONDS) -> list[str]:
        """The lines up to and including the first one that begins with `until`."""
        deadline = time.monotonic() + within
        lines: list[str] = []
        while not (lines and lines[-1].startswith(until)):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {until!r} within {within:g} s, but {lines}: {self.errors}") from None
            if line is None:
                raise AssertionError(f"the program ended after {lines}: {self.errors}")
            lines.append(line)
        return lines

    def ask(self, line: str, within: float = 2 * START_SECONDS) -> str:
        """Sends a command, and returns the text of the last line after "done"."""
        self.send(line)
        return self.read(within=within)[-1].removeprefix("done").strip()

    @property
    def errors(self) -> str:
        return (self._folder / "errors").read_text(errors="replace")[-3000:]

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self._lines.put(None)


class Messages(Program):
    """A producer and consumers. `java/Messages.java` documents the commands."""

    def __init__(
        self,
        classpath: Path,
        folder: Path,
        name_server: str,
        *,
        poll_ms: int = 30_000,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """`poll_ms`: period of its route lookups. The client's own default is 30 s."""
        arguments = (str(SOURCES / "Messages.java"), name_server, str(poll_ms))
        options = (f"-Duser.home={folder}", *options)
        super().__init__(java_command(classpath, *arguments, options=options), folder, env=env)

    def assert_exchange(self, topic: str, count: int, *, group: str = "") -> None:
        """Asserts that it can send and receive this many messages without a loss or failure."""
        sent = self.ask(f"send {topic} 0 {count}")
        assert f"sent {count} failures 0" in sent, sent
        group = group or f"group-of-{topic}"
        assert self.ask(f"subscribe {group} {topic}") == "subscribed"
        got = self.ask(f"await {group} {count}")
        assert got.startswith(f"got {count} "), got


class Grpc(Program):
    """The Java client for proxies, `java/Grpc.java`."""

    def __init__(self, classpath: Path, folder: Path, endpoint: str) -> None:
        arguments = (str(SOURCES / "Grpc.java"), endpoint)
        super().__init__(java_command(classpath, *arguments, options=[f"-Duser.home={folder}"]), folder)


class Admin(Program):
    """mqadmin as one process for many commands, `java/Admin.java`."""

    def __init__(self, classpath: Path, folder: Path) -> None:
        arguments = (str(SOURCES / "Admin.java"),)
        super().__init__(java_command(classpath, *arguments, options=[f"-Duser.home={folder}"]), folder)

    def run(self, *arguments: str) -> str:
        """The output of the command, including standard error."""
        self.send("\t".join(arguments))
        # The logging library prints its configuration at its first use.
        return "\n".join(line for line in self.read()[:-1] if "|-INFO in org.apache" not in line).strip()
