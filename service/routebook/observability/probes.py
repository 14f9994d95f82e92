"""Two measurements of a worker's process: its memory limit, and its pace.

The memory limit is the control group's, as containers set it. The pace is measured beside the requests: a lookup takes
a few microseconds, and timing each one would cost a good part of that. Ten times a second a timer fires; how late it
fires is how long a request waits, and then the next lookup of each port is timed.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from routebook.observability.metrics import Metrics

NO_LIMIT: Final = 0
_UNLIMITED_FROM: Final = 1 << 60
"""Version 1 of control groups writes "no limit" as a number near the maximum."""


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """`NO_LIMIT` when there is none or it cannot be found (systems other than Linux)."""
    found = [limit for folder in _folders(root) for limit in _limits(folder) if limit < _UNLIMITED_FROM]
    return min(found, default=NO_LIMIT)


def _folders(root: Path) -> list[Path]:
    """Folders of the process's control group and its parents, since each limits it. A container sees only its own."""
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


PERIOD_S: Final = 0.1


class Pace:
    def __init__(self, metrics: Metrics, sample_next: Sequence[Callable[[], None]]) -> None:
        """Each of `sample_next` makes one port time its next lookup."""
        self._metrics = metrics
        self._sample_next = sample_next

    async def run(self) -> None:
        while True:
            due = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self._metrics.loop_delay(max(time.monotonic() - due, 0.0))
            for sample in self._sample_next:
                sample()
