"""Which of two states of the history is newer, and when a stored answer need not be computed again."""

from dataclasses import replace

import pytest

from routebook_pipeline.answers.daily import Provenance, fingerprint
from routebook_pipeline.history import DEFAULTS

STATE = Provenance(changes=100, raw=3, pulses=0, until_ms=50, thresholds=7)


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        ({"changes": 101, "raw": 9}, "one more entry, even if it is unreadable"),
        ({"raw": 2}, "an unreadable entry could be parsed"),
        ({"pulses": 1}, "heartbeat gaps"),
        ({"until_ms": 51}, "more of the day is complete"),
    ],
)
def test_a_later_state_is_newer_and_satisfies_an_earlier_one(newer: dict[str, int], why: str) -> None:
    later = replace(STATE, **newer)
    assert later.is_newer_than(STATE), why
    assert later.satisfies(STATE)
    assert not STATE.satisfies(later)
    assert not STATE.is_newer_than(later)


def test_an_equal_state_satisfies_and_is_not_newer() -> None:
    assert STATE.satisfies(STATE)
    assert not STATE.is_newer_than(STATE)


def test_a_state_with_other_thresholds_neither_satisfies_nor_is_newer() -> None:
    other = replace(STATE, thresholds=8)
    assert not other.satisfies(STATE)
    assert not other.is_newer_than(STATE)
    assert fingerprint(DEFAULTS) == fingerprint(replace(DEFAULTS))
    assert fingerprint(DEFAULTS) != fingerprint(replace(DEFAULTS, objective=0.99))


def test_a_record_of_zero_counts_as_recorded() -> None:
    """Days before the first heartbeat gap have 0 there."""
    records = STATE.records("failures-by-seat", "2026-05-01")
    assert Provenance.recorded(records, "failures-by-seat", "2026-05-01") == STATE
    assert Provenance.recorded(records, "failures-by-seat", "2026-05-02") is None


def test_a_record_that_misses_a_field_counts_as_not_recorded() -> None:
    records = STATE.records("flaps-by-seat", "2026-05-01")
    del records["flaps-by-seat/2026-05-01/thresholds"]
    assert Provenance.recorded(records, "flaps-by-seat", "2026-05-01") is None
