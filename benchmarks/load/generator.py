"""Builds the load generator from lookups.c when needed, and runs it."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("lookups.c")
WARM_UP_MS = 150
"""Connecting and the first answers are not counted."""


@dataclass(frozen=True)
class Load:
    connections: int
    in_flight: int

    def __str__(self) -> str:
        return f"{self.connections} x {self.in_flight}"


@dataclass(frozen=True)
class Result:
    """The output of one run; see lookups.c."""

    answers: int
    errors: int
    first_error: str
    seconds: float
    own_cpu_seconds: float
    server_cpu_seconds: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.answers / self.server_cpu_seconds


def build() -> Path:
    """The program is named after the hash of its source, so an outdated one is never run. Its folder is private."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SystemExit("The load generator is C: install a compiler (cc), or name one with CC.")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"routebook-benchmarks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SystemExit(f"{folder} belongs to another user.")
    built = folder / f"lookups-{digest}"
    if not built.exists():
        half = built.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(half), str(SOURCE)]
        compiling = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiling.returncode:
            raise SystemExit(f"{compiler} does not build {SOURCE.name}:\n{compiling.stderr}")
        half.replace(built)
    return built


def run(
    generator: Path,
    port: int,
    load: Load,
    seconds: float,
    requests: list[bytes],
    *,
    body_bytes: int,
    process: int,
    paired: bool = True,
) -> Result:
    """`body_bytes` is the size of every answer. `process` is the server whose CPU time is measured."""
    numbers = (load.connections, load.in_flight, WARM_UP_MS, int(seconds * 1000), body_bytes, int(paired), process)
    running = subprocess.run(
        [str(generator), "127.0.0.1", str(port), *map(str, numbers)],
        input=b"".join(requests),
        capture_output=True,
        timeout=seconds + 60,
        check=False,
    )
    if running.returncode:
        raise SystemExit(running.stderr.decode().strip() or f"The load generator ended with {running.returncode}.")
    result = Result(**json.loads(running.stdout))
    if result.errors or not result.answers:
        raise SystemExit(f"{result.errors} wrong answers of {result.answers}: {result.first_error}")
    return result
