"""The two kinds of scenarios: planned changes and sudden failures, while brokers register and clients look up.

Both assert what clients may notice, and record the figures under the scenario's name.
"""

import time
from collections.abc import Callable
from typing import Final

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Window
from tests.kubernetes.release import Pod, Release
from tests.kubernetes.verdicts import assert_no_lookup_failed, assert_one_retry_suffices, assert_unnoticed

WRONG_REMOVAL_S: Final = 6
"""`connection_grace_ms` and a dial. A broker that is wrongly removed after the last connections of the last worker have
ended is removed within this time.
"""
WITHDRAWN_WITHIN_S: Final = 90
"""The control plane considers a node lost after 40 s without its heartbeat, and then withdraws its pods' endpoints."""
LAST_TRIES_S: Final = 7
"""A try that start just before the endpoint was withdrawn takes three seconds to connect. The client's next try may go
there too, since kube-proxy updates its packet filter a moment after the endpoint is withdrawn.
"""
QUIET_S: Final = 10


def assert_change_is_unnoticed(name: str, release: Release, fleet: Fleet, change: Callable[[], object]) -> None:
    """Makes a planned change (upgrade, restart, drain); no client may lose a lookup."""
    before = release.version()
    time.sleep(2)
    open_window = fleet.open_window()
    change()
    release.wait_until_consistent()
    time.sleep(WRONG_REMOVAL_S)
    window = open_window.close()
    figures.record(name, window.describe())
    assert release.removals_since(before) == []
    assert_unnoticed(window)


def assert_failure_costs_one_retry(
    name: str,
    release: Release,
    fleet: Fleet,
    victim: Pod,
    cause_failure: Callable[[], object],
    *,
    has_ended: Callable[[], object] = lambda: True,
    takes_the_store: bool = False,
) -> Window:
    """Causes a failure of the victim's process, pod or node. Each client that was connected to the victim may have one
    failed try; once the victim's endpoint is withdrawn, no try may fail any more.

    The returned window begins with the failure and ends some time after the endpoint is withdrawn and `has_ended`.
    """
    before = release.version()
    time.sleep(2)
    connected = release.connections(victim)
    whole = fleet.open_window()
    cause_failure()
    release.wait_until_withdrawn(victim, WITHDRAWN_WITHIN_S)
    withdrawn_s = time.monotonic() - whole.start
    release.cluster.wait(has_ended, f"the end of {victim.name}")
    time.sleep(LAST_TRIES_S)
    after_withdrawal = fleet.open_window()
    time.sleep(QUIET_S)
    quiet, window = after_withdrawal.close(), whole.close()
    measured = {"were connected to it": connected, "endpoint withdrawn after s": withdrawn_s}
    figures.record(name, {**measured, **window.describe()})
    assert_no_lookup_failed(quiet, store_available=not takes_the_store)
    assert_one_retry_suffices(window, connected=connected, store_available=not takes_the_store)
    if not takes_the_store:
        assert release.removals_since(before) == []
    return window
