"""A program in a process group of its own, Python and its JVM, that may be told to stop or be killed."""

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
    """`python ARGUMENTS`, and what it says, both outputs in one file."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], says: Path) -> None:
        self._says = says
        with says.open("wb") as out:
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
    def said(self) -> str:
        return self._says.read_text()

    def wait_until(self, is_true: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert self._process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def wait_until_said(self, *words: str, times: int = 1) -> None:
        self.wait_until(lambda: all(self.said.count(word) >= times for word in words))

    def tell(self, number: signal.Signals) -> None:
        """The process itself, as a supervisor does; its Java has another group."""
        self._process.send_signal(number)

    def let_run(self, seconds: float) -> None:
        """Or less, when it ends before."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def end(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code, or minus the signal that ended it."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {within_s} s: {self.said}") from None

    def kill(self) -> int:
        """All of it, as a machine dies. Nothing is sent to a group whose leader has been waited for: its number may be
        another's by now. (A JVM that is left alone ends by itself.)
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()
