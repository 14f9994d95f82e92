"""What comes without a word (a process, a pod, a node dies), under lookups and registrations from outside."""

import time
from collections.abc import Callable
from typing import Final

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Window
from tests.kubernetes.release import Pod, Release
from tests.kubernetes.verdicts import assert_a_retry_is_enough, assert_lookups_go_on

WITHDRAWN_WITHIN_S: Final = 90
"""The control plane takes a node for lost after 40 s of silence, then withdraws the endpoints of its pods."""
LAST_TRIES_S: Final = 7
"""A try that began just before the endpoint was withdrawn takes three seconds to connect, and its client's next one
may have been sent there by a packet filter that had not heard yet.
"""
QUIET_S: Final = 10


def strike(
    name: str,
    release: Release,
    fleet: Fleet,
    victim: Pod,
    blow: Callable[[], object],
    *,
    ends: Callable[[], object] = lambda: True,
    takes_the_store: bool = False,
) -> Window:
    """From the blow until the victim's endpoint is withdrawn and it has come to its end (`ends`), and a little longer.
    At most who was connected to it fails, once; and when the endpoint is withdrawn nobody fails any more.
    """
    before = release.version()
    time.sleep(2)
    connected = release.connections(victim)
    stretch = fleet.stretch()
    blow()
    release.wait_until_withdrawn(victim, WITHDRAWN_WITHIN_S)
    withdrawn_s = time.monotonic() - stretch.began
    release.cluster.wait(ends, f"the end of {victim.name}")
    time.sleep(LAST_TRIES_S)
    after = fleet.stretch()
    time.sleep(QUIET_S)
    quiet, seen = after.end(), stretch.end()
    measured = {"were connected to it": connected, "endpoint withdrawn after s": withdrawn_s}
    figures.tell(name, {**measured, **seen.describe()})
    assert_lookups_go_on(quiet, store_is_there=not takes_the_store)
    assert_a_retry_is_enough(seen, at_most=connected, store_is_there=not takes_the_store)
    if not takes_the_store:
        assert release.removals_since(before) == []
    return seen
