"""What a scenario must have shown. Each verdict begins with whether anything was asked: no failure among no lookups is
no proof.
"""

import math
from collections import Counter
from typing import Final

from tests.kubernetes.load.record import KINDS, Outage, Window

ENOUGH: Final = 0.8
"""Of what was due: clients wait for their answers, a busy machine delays all of them a little."""


def assert_enough_was_asked(seen: Window, *, store_is_there: bool = True) -> None:
    due = ENOUGH * seen.due_of_each_kind()
    assert all(seen.answered[kind] >= due for kind in KINDS), f"{seen.answered} lookups answered, not {due:.0f} each"
    due = math.floor(ENOUGH * seen.due_registrations())
    assert len(seen.registrations) >= due, f"{len(seen.registrations)} registrations were tried, not {due}"
    if store_is_there:
        last = {one.who: one.how for one in seen.registrations}
        assert set(last.values()) <= {"ok"}, f"a broker's last registration was not taken: {last}"


def assert_lookups_go_on(seen: Window, *, store_is_there: bool = True) -> None:
    """No try failed, of whichever client."""
    assert seen.failures == []
    assert_none_lost_or_blank(seen)
    assert_enough_was_asked(seen, store_is_there=store_is_there)


def assert_nobody_noticed(seen: Window) -> None:
    """Of what is announced: who follows GO_AWAY sees no failed try, the others one at most; every broker is taken."""
    assert seen.failed_first("follows") == 0, seen.failures
    assert seen.most_tries_failed <= 1, seen.failures
    assert seen.moves > 0
    assert not seen.not_registered
    assert_none_lost_or_blank(seen)
    assert_enough_was_asked(seen)


def assert_a_retry_is_enough(seen: Window, *, at_most: int, store_is_there: bool = True) -> None:
    """Of what is not: a lookup fails only for who was connected to what died, once, and not if it is tried again.
    `at_most`: how many were.
    """
    failed = Counter(one.who for one in seen.failures if one.attempt == 1)
    assert failed.total() <= at_most, f"{failed.total()} first tries failed, and {at_most} were connected: {failed}"
    assert set(failed.values()) <= {1}, f"a client failed more than once: {failed}"
    assert_none_lost_or_blank(seen)
    assert_enough_was_asked(seen, store_is_there=store_is_there)


def assert_none_lost_or_blank(seen: Window) -> None:
    assert seen.lost == []
    assert seen.blanks == []


def assert_writes_were_refused_and_are_back(seen: Window, *, within_s: float) -> Outage:
    """`within_s`: of the begin of the window."""
    outage = seen.outage()
    assert outage.refused > 0, "nobody refused a write: was the store away at all?"
    assert outage.back_s <= within_s, outage
    return outage
