"""How much memory this process may take before the kernel ends it: the control group's limit, as containers set it."""

from pathlib import Path
from typing import Final

NO_LIMIT: Final = 0
_UNLIMITED_FROM: Final = 1 << 60
"""Version 1 of control groups writes no limit as a number near the largest."""


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """`NO_LIMIT` where there is none, or none can be found: other systems than Linux."""
    found = [limit for folder in _folders(root) for limit in _limits(folder) if limit < _UNLIMITED_FROM]
    return min(found, default=NO_LIMIT)


def _folders(root: Path) -> list[Path]:
    """Of the process's own group and those above it: each bounds it. In a container the own one is the topmost seen."""
    mount = root / "sys/fs/cgroup"
    folders = [mount, mount / "memory"]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = mount if number == "0" else mount / "memory" if "memory" in controllers.split(",") else None
        if top is None:
            continue
        own = top / path.lstrip("/")
        folders += [own, *(above for above in own.parents if above.is_relative_to(top))]
    return folders


def _limits(folder: Path) -> list[int]:
    found = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return found
