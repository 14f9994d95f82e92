"""What peers are made of: RocketMQ's own jars by Maven, a package of npm. Kept in the user's cache folder: fetched
once a machine and version.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

FETCH_SECONDS = 600
ALL_PARTS = ("namesrv", "broker", "client", "tools")
"""Every version of `VERSIONS` has these; 5.x has also `proxy` and `container`."""
VERSIONS = ("5.5.0", "5.3.3", "4.9.7", "4.9.3")
"""Not every version of RocketMQ is whole in Maven; these are."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>routebook</groupId><artifactId>peers</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId>"
    "<version>{version}</version></dependency>"
)
_failures: dict[str, str] = {}


class Unavailable(Exception):  # noqa: N818 not a failure: a reason to skip
    """What this machine lacks, for `pytest.skip`."""


def jars(version: str, *artifacts: str) -> Path:
    """A folder with these artifacts of RocketMQ (without the prefix `rocketmq-`; default: `ALL_PARTS`) and all
    they need. For `java -cp 'FOLDER/*'`.
    """
    names = sorted(artifacts or ALL_PARTS)
    return _had("-".join((version, *names)), ("java", "mvn"), lambda folder: _fetch_jars(folder, version, names))


def node_modules(package: str, version: str) -> Path:
    """A package of npm and all it needs, for NODE_PATH."""

    def fetch(folder: Path) -> Path:
        words = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
        _run("npm", "install", *words, f"{package}@{version}", cwd=folder, what=f"{package} {version}")
        return folder / "node_modules"

    return _had(f"{package}-{version}", ("node", "npm"), fetch)


def _had(key: str, tools: Sequence[str], fetch: Callable[[Path], Path]) -> Path:
    """From the cache; `fetch` makes it in a folder of its own and says where."""
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        raise Unavailable(f"needs {' and '.join(missing)}")
    if key in _failures:
        # Without this a machine that is offline would ask again in every test.
        raise Unavailable(_failures[key])
    target = _cache() / key
    with _alone(_cache()):
        if not target.is_dir():
            try:
                with tempfile.TemporaryDirectory(dir=_cache(), prefix="fetching-") as unfinished:
                    # In place at once or not at all.
                    fetch(Path(unfinished)).rename(target)
            except Unavailable as error:
                _failures[key] = str(error)
                raise
    return target


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "routebook-tests" / "rocketmq"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two runs that fetch the same wait for each other; Maven's own store does not like company either."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_jars(folder: Path, version: str, names: list[str]) -> Path:
    dependencies = "".join(_DEPENDENCY.format(name=name, version=version) for name in names)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    words = ("-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    _run("mvn", *words, cwd=folder, what=f"rocketmq-{{{','.join(names)}}} {version}")
    return folder / "jars"


def _run(tool: str, *words: str, cwd: Path, what: str) -> None:
    log = _cache() / f"{tool}.log"
    with log.open("wb") as output:
        command = [tool, *words]
        try:
            subprocess.run(command, cwd=cwd, stdout=output, stderr=output, timeout=FETCH_SECONDS, check=True)
        except subprocess.SubprocessError:
            raise Unavailable(f"{tool} could not fetch {what} (see {log})") from None
