"""Runs commands one after the other in one process, so that Java starts only once. Each gives its exit code and its
standard output, which must contain nothing but the answer.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

_END = "=== exit code "

_PROGRAM = f"""
import json, sys
from routebook.cli.main import run
for line in sys.stdin:
    code = run(json.loads(line))
    sys.stdout.flush()
    print("{_END}" + str(code), flush=True)
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str


class Shell:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The JVM ends with the process, because its standard input ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        finally:
            self._process.stdout.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def pipeline(self, *arguments: str) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = ", ".join(f'"{word}"' for word in ("pipeline", *arguments))
        self._process.stdin.write(f"[{words}]\n")
        self._process.stdin.flush()
        out: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_END):
                return Result(int(line.removeprefix(_END)), "".join(out))
            out.append(line)
        raise AssertionError(f"the process ended during {arguments}; its output: {''.join(out)}")
