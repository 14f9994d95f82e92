"""What each scenario must show. Every verdict also checks that there was enough traffic, since without lookups the
absence of failures proves nothing.
"""

import math
from collections import Counter
from typing import Final

from tests.kubernetes.load.record import KINDS, Window, WriteOutage

REQUIRED_SHARE: Final = 0.8
"""Required share of the planned load. Clients wait for their answers, so a busy machine slows all of them down."""


def assert_enough_traffic(window: Window, *, store_available: bool = True) -> None:
    lookups = REQUIRED_SHARE * window.planned_lookups_of_each_kind()
    assert all(window.answered[kind] >= lookups for kind in KINDS), (
        f"answered lookups: {window.answered}, required: {lookups:.0f} of each kind"
    )
    registrations = math.floor(REQUIRED_SHARE * window.planned_registrations())
    assert len(window.registrations) >= registrations, (
        f"registrations sent: {len(window.registrations)}, required: {registrations}"
    )
    if store_available:
        last = {registration.broker: registration.outcome for registration in window.registrations}
        assert set(last.values()) <= {"ok"}, f"a broker's last registration failed: {last}"


def assert_no_lookup_failed(window: Window, *, store_available: bool = True) -> None:
    """No try of any client failed."""
    assert window.failures == []
    assert_none_lost_or_wrong(window)
    assert_enough_traffic(window, store_available=store_available)


def assert_unnoticed(window: Window) -> None:
    """After a planned change: no try of a GO_AWAY client failed, at most one try of a legacy client's lookup, and no
    registration.
    """
    assert window.failed_first_tries("go_away") == 0, window.failures
    assert window.most_failed_tries <= 1, window.failures
    assert window.moves > 0
    assert not window.failed_registrations
    assert_none_lost_or_wrong(window)
    assert_enough_traffic(window)


def assert_one_retry_suffices(window: Window, *, connected: int, store_available: bool = True) -> None:
    """After a sudden failure: each of the `connected` clients may have one lookup whose first try failed."""
    failed = Counter(failure.client for failure in window.failures if failure.attempt == 1)
    assert failed.total() <= connected, f"{failed.total()} first tries failed, {connected} were connected: {failed}"
    assert set(failed.values()) <= {1}, f"a client failed more than once: {failed}"
    assert_none_lost_or_wrong(window)
    assert_enough_traffic(window, store_available=store_available)


def assert_none_lost_or_wrong(window: Window) -> None:
    assert window.lost == []
    assert window.wrong_answers == []


def assert_writes_resumed(window: Window, *, within_s: float) -> WriteOutage:
    """Writes failed, and succeeded again within this time from the window's start."""
    outage = window.write_outage()
    assert outage.failed > 0, "no write failed: was the store unavailable at all?"
    assert outage.resumed_s <= within_s, outage
    return outage
