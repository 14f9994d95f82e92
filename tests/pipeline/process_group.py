"""A Python program that runs in a process group of its own, so that a test can stop or kill it with its JVM."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 240.0


class ProcessGroup:
    """`python ARGUMENTS`, with both outputs in the file `log`."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, **environment},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_until(self, is_true: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def wait_for_output(self, *words: str, times: int = 1) -> None:
        self.wait_until(lambda: all(self.output.count(word) >= times for word in words))

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process itself, as a supervisor does. Its Java is in another process group."""
        self._process.send_signal(number)

    def let_run(self, seconds: float) -> None:
        """Waits that long, or until the process ends."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def end(self, within_s: float = PATIENCE_S) -> int:
        """Waits for the end. Returns the exit code, or minus the number of the signal that ended the process."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s} s: {self.output}") from None

    def kill(self) -> int:
        """Kills the whole group, as when a machine dies.

        Nothing is sent if the process has ended already, because another process may have its group number by then.
        (A JVM whose parent has ended ends by itself.)
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()
