"""Which of two states of the history is the newer, and which is good enough."""

from dataclasses import replace

import pytest

from routebook_pipeline.answers.daily import Provenance, fingerprint
from routebook_pipeline.history import DEFAULTS

STATE = Provenance(changes=100, raw=3, pulses=0, until_ms=50, thresholds=7)


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        ({"changes": 101, "raw": 9}, "an entry more, and if it cannot be read"),
        ({"raw": 2}, "one could be read again"),
        ({"pulses": 1}, "heartbeats"),
        ({"until_ms": 51}, "more of the day was over"),
    ],
)
def test_what_came_later_is_newer(newer: dict[str, int], why: str) -> None:
    later = replace(STATE, **newer)
    assert later.is_newer_than(STATE), why
    assert later.stands_for(STATE)
    assert not STATE.stands_for(later)
    assert not STATE.is_newer_than(later)


def test_the_same_stands_and_is_not_newer() -> None:
    assert STATE.stands_for(STATE)
    assert not STATE.is_newer_than(STATE)


def test_other_thresholds_are_neither_newer_nor_good_enough() -> None:
    other = replace(STATE, thresholds=8)
    assert not other.stands_for(STATE)
    assert not other.is_newer_than(STATE)
    assert fingerprint(DEFAULTS) == fingerprint(replace(DEFAULTS))
    assert fingerprint(DEFAULTS) != fingerprint(replace(DEFAULTS, objective=0.99))


def test_a_record_of_nothing_is_a_record() -> None:
    """Of the days before the first heartbeat gap there is none, and 0 says so."""
    records = STATE.records("failures-by-seat", "2026-05-01")
    assert Provenance.recorded(records, "failures-by-seat", "2026-05-01") == STATE
    assert Provenance.recorded(records, "failures-by-seat", "2026-05-02") is None


def test_what_recorded_less_is_made_again() -> None:
    records = STATE.records("flaps-by-seat", "2026-05-01")
    del records["flaps-by-seat/2026-05-01/thresholds"]
    assert Provenance.recorded(records, "flaps-by-seat", "2026-05-01") is None
