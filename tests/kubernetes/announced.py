"""What is announced (upgrades, restarts, drains), under lookups and registrations from outside."""

import time
from collections.abc import Callable

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Window
from tests.kubernetes.release import Release


def under_load(name: str, release: Release, fleet: Fleet, change: Callable[[], object]) -> Window:
    before = release.version()
    time.sleep(2)
    stretch = fleet.stretch()
    change()
    release.settle()
    time.sleep(2)
    seen = stretch.end()
    figures.tell(name, seen.describe())
    assert release.removals_since(before) == []
    return seen


def assert_nobody_noticed(seen: Window) -> None:
    assert seen.failed_first("follows") == 0, seen.failures
    assert seen.most_tries_failed <= 1, seen.failures
    assert seen.blanks == []
    assert seen.lost == []
    assert seen.moves > 0
    assert not seen.not_registered
