"""What is announced (upgrades, restarts, drains), under lookups and registrations from outside."""

import time
from collections.abc import Callable
from typing import Final

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import Release
from tests.kubernetes.verdicts import assert_nobody_noticed

REMOVED_BY_NOW_S: Final = 6
"""`connection_grace_ms` and a dial: whoever were removed wrongly, with the last connections of the last worker, would
be gone.
"""


def announce(name: str, release: Release, fleet: Fleet, change: Callable[[], object]) -> None:
    """Makes the change, and nobody notices."""
    before = release.version()
    time.sleep(2)
    stretch = fleet.stretch()
    change()
    release.settle()
    time.sleep(REMOVED_BY_NOW_S)
    seen = stretch.end()
    figures.tell(name, seen.describe())
    assert release.removals_since(before) == []
    assert_nobody_noticed(seen)
