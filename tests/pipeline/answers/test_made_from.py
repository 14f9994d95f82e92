"""Which of two states of the history is the newer, and which is good enough."""

from dataclasses import replace

import pytest

from routebook_pipeline.answers.made_from import MadeFrom, SoFar, fingerprint
from routebook_pipeline.history import DEFAULTS
from routebook_pipeline.lake.tables import DataFile

STATE = MadeFrom(changes=100, raw=3, pulses=0, until_ms=50, thresholds=7)


def file_of(day: str, last_ord: int, rows: int = 10, without_raw: int | None = 10) -> DataFile:
    return DataFile(f"{day}/{last_ord}", 1, rows, day, 1, last_ord, 0, 0, without_raw)


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
    assert MadeFrom.recorded(records, "failures-by-seat", "2026-05-01") == STATE
    assert MadeFrom.recorded(records, "failures-by-seat", "2026-05-02") is None


def test_what_recorded_less_is_made_again() -> None:
    records = STATE.records("flaps-by-seat", "2026-05-01")
    del records["flaps-by-seat/2026-05-01/thresholds"]
    assert MadeFrom.recorded(records, "flaps-by-seat", "2026-05-01") is None


def test_a_day_rests_on_itself_and_all_days_before() -> None:
    files = [file_of("2026-05-03", 30), file_of("2026-05-01", 10, without_raw=8), file_of("2026-05-01", 35)]
    so_far = SoFar(files)
    days = ("2026-04-30", "2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04")
    assert [so_far.newest(day) for day in days] == [0, 35, 35, 35, 35]
    assert [so_far.raw(day) for day in days] == [0, 2, 2, 2, 2]


def test_rows_that_nobody_counted_may_all_be_raw() -> None:
    assert SoFar([file_of("2026-05-01", 1, rows=4, without_raw=None)]).raw("2026-05-01") == 4
