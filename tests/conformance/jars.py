"""Fetches RocketMQ's jars with Maven, packages with npm, and builds programs with Go.

They are kept in the user's cache folder, so that each version is fetched once per machine.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

FETCH_SECONDS = 600
ALL_PARTS = ("namesrv", "broker", "client", "tools")
"""The artifacts that all of `VERSIONS` have. 5.x also has `proxy` and `container`."""
VERSIONS = ("5.5.0", "5.3.3", "4.9.7", "4.9.3")
"""Versions of which Maven has all artifacts. Other versions are incomplete there."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>routebook</groupId><artifactId>peers</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId>"
    "<version>{version}</version></dependency>"
)
_failures: dict[str, str] = {}


class UnavailableError(Exception):
    """The text says what this machine lacks, for `pytest.skip`."""


def jars(version: str, *artifacts: str) -> Path:
    """A folder with these artifacts of RocketMQ and their dependencies, for `java -cp 'FOLDER/*'`. The names have no
    prefix `rocketmq-`, and the default is `ALL_PARTS`.
    """
    names = sorted(artifacts or ALL_PARTS)
    return _cached("-".join((version, *names)), ("java", "mvn"), lambda folder: _fetch_jars(folder, version, names))


def node_modules(package: str, version: str) -> Path:
    """A folder with an npm package and its dependencies, for NODE_PATH."""

    def fetch(folder: Path) -> Path:
        arguments = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
        _run("npm", "install", *arguments, f"{package}@{version}", cwd=folder, what=f"{package} {version}")
        return folder / "node_modules"

    return _cached(f"{package}-{version}", ("node", "npm"), fetch)


def go_program(source: Path) -> Path:
    """The program that `go build` makes of this folder."""
    files = sorted(source.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]

    def build(folder: Path) -> Path:
        for file in files:
            shutil.copy(file, folder)
        (folder / "built").mkdir()
        _run("go", "build", "-mod=readonly", "-o", "built/program", ".", cwd=folder, what=f"{source.name}'s modules")
        return folder / "built"

    return _cached(f"go-{digest}", ("go",), build) / "program"


def _cached(key: str, tools: Sequence[str], fetch: Callable[[Path], Path]) -> Path:
    """The folder in the cache. If it is missing, `fetch` creates it in a temporary folder and returns its path."""
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        raise UnavailableError(f"needs {' and '.join(missing)}")
    if key in _failures:
        # An offline machine must not try again in every test.
        raise UnavailableError(_failures[key])
    target = _cache() / key
    with _locked(_cache()):
        if not target.is_dir():
            try:
                with tempfile.TemporaryDirectory(dir=_cache(), prefix="fetching-") as unfinished:
                    # Renamed only when it is complete.
                    fetch(Path(unfinished)).rename(target)
            except UnavailableError as error:
                _failures[key] = str(error)
                raise
    return target


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "routebook-tests" / "rocketmq"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one run fetch at a time, since Maven's local repository does not support several."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_jars(folder: Path, version: str, names: list[str]) -> Path:
    dependencies = "".join(_DEPENDENCY.format(name=name, version=version) for name in names)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    arguments = ("-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    _run("mvn", *arguments, cwd=folder, what=f"rocketmq-{{{','.join(names)}}} {version}")
    return folder / "jars"


def _run(tool: str, *arguments: str, cwd: Path, what: str) -> None:
    log = _cache() / f"{tool}.log"
    with log.open("wb") as output:
        command = [tool, *arguments]
        try:
            subprocess.run(command, cwd=cwd, stdout=output, stderr=output, timeout=FETCH_SECONDS, check=True)
        except subprocess.SubprocessError:
            raise UnavailableError(f"{tool} could not fetch {what} (see {log})") from None
