"""Which time an answer covers, and the lines that say so."""

from typing import Any

import pytest

from routebook_pipeline.answers.coverage import (
    HistoryExtent,
    ResolvedWindow,
    instant_of_version,
    integrity_line,
    is_ok,
    resolve_instant,
    resolve_window,
    window_line,
)
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import DAY_MS, ERA_SHIFT, Instant, Window
from routebook_pipeline.times import When

C = 100 * DAY_MS
EXTENT = HistoryExtent(complete_until_ms=C, now_ms=C + 500)


def test_the_default_window_is_the_day_before_the_end_of_the_history() -> None:
    assert resolve_window(EXTENT, None, None, allow_partial=False) == ResolvedWindow(Window(C - DAY_MS, C), C)


def test_relative_times_count_from_the_stores_clock() -> None:
    resolved = resolve_window(EXTENT, When(ago_ms=2_500), When(ago_ms=1_500), allow_partial=False)
    assert resolved.window == Window(C - 2_000, C - 1_000)


def test_a_window_that_ends_after_the_complete_history_is_refused() -> None:
    with pytest.raises(NegativeAnswerError, match=r"complete until .*--allow-partial"):
        resolve_window(EXTENT, None, When(ms=C + 1), allow_partial=False)
    resolve_window(EXTENT, None, When(ms=C), allow_partial=False)


def test_with_allow_partial_the_window_is_cut_and_marked_as_partial() -> None:
    resolved = resolve_window(EXTENT, When(ms=C - 5), When(ms=C + 1), allow_partial=True)
    assert resolved == ResolvedWindow(Window(C - 5, C), C + 1)
    assert resolved.is_partial
    wholly_beyond = resolve_window(EXTENT, When(ms=C + 3), When(ms=C + 9), allow_partial=True)
    assert wholly_beyond == ResolvedWindow(Window(C, C), C + 9)
    assert wholly_beyond.is_partial
    assert resolve_window(EXTENT, When(ms=C + 9), When(ms=C + 9), allow_partial=True).is_partial


@pytest.mark.parametrize("start", [When(ago_ms=300), When(ago_ms=0), When(ms=C + 1), When(ms=C + 900)])
def test_a_start_after_the_complete_history_is_incomplete_and_no_usage_error(start: When) -> None:
    """For example `--from -5m` when the last batch was read ten minutes ago."""
    with pytest.raises(NegativeAnswerError, match=r"complete until .* is later.*ingest --once"):
        resolve_window(EXTENT, start, None, allow_partial=False)
    resolved = resolve_window(EXTENT, start, None, allow_partial=True)
    assert resolved.window == Window(C, C)
    assert resolved.asked_until_ms >= EXTENT.now_ms
    assert resolved.is_partial


def test_a_window_may_start_at_the_end_of_the_complete_history() -> None:
    assert resolve_window(EXTENT, When(ms=C), None, allow_partial=False) == ResolvedWindow(Window(C, C), C)


def test_a_window_may_be_empty_but_not_reversed() -> None:
    assert resolve_window(EXTENT, When(ms=5), When(ms=5), allow_partial=False).window == Window(5, 5)
    with pytest.raises(WrongUsageError, match="Exchange --from and --to"):
        resolve_window(EXTENT, When(ms=6), When(ms=5), allow_partial=False)


def test_now_means_the_last_complete_millisecond() -> None:
    up_to_date = HistoryExtent(complete_until_ms=C, now_ms=C)
    assert resolve_instant(up_to_date, When(ago_ms=0), allow_partial=False) == (C - 1, False)
    assert resolve_instant(EXTENT, None, allow_partial=False) == (C - 1, False)


def test_an_instant_after_the_complete_history_is_refused() -> None:
    assert resolve_instant(EXTENT, When(ms=C - 1), allow_partial=False) == (C - 1, False)
    with pytest.raises(NegativeAnswerError, match="is not before that"):
        resolve_instant(EXTENT, When(ms=C), allow_partial=False)
    assert resolve_instant(EXTENT, When(ms=C), allow_partial=True) == (C - 1, True)


def test_a_version_without_an_era_belongs_to_the_newest_era() -> None:
    extent = HistoryExtent(complete_until_ms=C, now_ms=C, newest=(1, 9))
    assert instant_of_version(extent, 9, None) == Instant(ord=ERA_SHIFT + 9)
    assert instant_of_version(extent, 500, 0) == Instant(ord=500)
    with pytest.raises(NegativeAnswerError, match="up to version 9 of era 1"):
        instant_of_version(extent, 10, None)


def test_an_instant_before_the_lakes_first_entry_is_refused_with_the_beginning_of_the_history() -> None:
    extent = HistoryExtent(complete_until_ms=C, now_ms=C, since_ms=50 * DAY_MS, newest=(1, 9), first=(0, 17))
    begins = r"the lake holds the history since version 17 at 1970-02-20T00:00:00.000Z"
    for at in (When(ms=50 * DAY_MS - 1), When(ago_ms=60 * DAY_MS)):
        with pytest.raises(NegativeAnswerError, match=f"Nothing is known about .*: {begins}"):
            resolve_instant(extent, at, allow_partial=True)
    assert resolve_instant(extent, When(ms=50 * DAY_MS), allow_partial=False) == (50 * DAY_MS, False)
    with pytest.raises(NegativeAnswerError, match=f"Nothing is known about version 16: {begins}"):
        instant_of_version(extent, 16, 0)
    assert instant_of_version(extent, 17, 0) == Instant(ord=17)
    assert instant_of_version(extent, 3, None) == Instant(ord=ERA_SHIFT + 3)


INTACT: dict[str, Any] = {
    "era": 0,
    "first_version": 1,
    "last_version": 9,
    "entries": 9,
    "holes": [],
    "missing": 0,
    "forks": 0,
    "late": 0,
    "duplicates": 0,
    "unreadable": {},
    "baselines": 1,
    "complete_until_ms": 0,
    "ok": True,
}
DAMAGED = INTACT | {
    "era": 1,
    "holes": [{"from_version": 3, "to_version": 4}],
    "missing": 2,
    "forks": 1,
    "unreadable": {"newer": 1},
    "ok": False,
}


def test_an_intact_history_is_reported_as_ok() -> None:
    assert is_ok([INTACT])
    assert integrity_line([INTACT]) == "history ok: versions 1 to 9, 9 entries"


def test_everything_that_is_wrong_is_listed() -> None:
    assert not is_ok([INTACT, DAMAGED])
    assert integrity_line([INTACT, DAMAGED]) == (
        "history NOT ok: era 0: versions 1 to 9, 9 entries; "
        "era 1: versions 1 to 9, 9 entries, 2 missing (3-4), 1 forks, 1 unreadable (newer)"
    )


def test_a_window_without_entries_is_ok() -> None:
    assert is_ok([])
    assert integrity_line([]) == "history ok: no entries in the window"


def test_the_line_of_a_partial_window_says_partial() -> None:
    assert "PARTIAL" not in window_line(0, 5, 9, 5)
    assert window_line(0, 5, 5, 9).endswith("PARTIAL: asked until 1970-01-01T00:00:00.009Z")
