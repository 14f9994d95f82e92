"""Which window an answer is about."""

import pytest

from routebook_pipeline.answers.coverage import (
    HistoryExtent,
    ResolvedWindow,
    instant_of_version,
    resolve_instant,
    resolve_window,
)
from routebook_pipeline.errors import NegativeAnswerError, WrongUsageError
from routebook_pipeline.history import DAY_MS, ERA_SHIFT, Instant, Window
from routebook_pipeline.times import When

C = 100 * DAY_MS
REACH = HistoryExtent(complete_until_ms=C, now_ms=C + 500)


def test_without_bounds_it_is_the_day_before_the_end_of_the_history() -> None:
    assert resolve_window(REACH, None, None, allow_partial=False) == ResolvedWindow(Window(C - DAY_MS, C), C)


def test_what_is_relative_counts_from_the_stores_clock() -> None:
    resolved = resolve_window(REACH, When(ago_ms=2_500), When(ago_ms=1_500), allow_partial=False)
    assert resolved.window == Window(C - 2_000, C - 1_000)


def test_beyond_the_history_nothing_is_answered() -> None:
    with pytest.raises(NegativeAnswerError, match=r"complete until .*--allow-partial"):
        resolve_window(REACH, None, When(ms=C + 1), allow_partial=False)
    resolve_window(REACH, None, When(ms=C), allow_partial=False)


def test_a_part_is_answered_when_welcome_and_said_to_be_one() -> None:
    resolved = resolve_window(REACH, When(ms=C - 5), When(ms=C + 1), allow_partial=True)
    assert resolved == ResolvedWindow(Window(C - 5, C), C + 1)
    assert resolved.is_partial
    wholly_beyond = resolve_window(REACH, When(ms=C + 3), When(ms=C + 9), allow_partial=True)
    assert wholly_beyond == ResolvedWindow(Window(C, C), C + 9)
    assert wholly_beyond.is_partial
    assert resolve_window(REACH, When(ms=C + 9), When(ms=C + 9), allow_partial=True).is_partial


@pytest.mark.parametrize("start", [When(ago_ms=300), When(ago_ms=0), When(ms=C + 1), When(ms=C + 900)])
def test_without_an_end_a_start_behind_the_history_is_not_wrong_but_not_complete(start: When) -> None:
    """`--from -5m`, and the last batch was read ten minutes ago."""
    with pytest.raises(NegativeAnswerError, match=r"complete until .* is later.*ingest --once"):
        resolve_window(REACH, start, None, allow_partial=False)
    resolved = resolve_window(REACH, start, None, allow_partial=True)
    assert resolved.window == Window(C, C)
    assert resolved.asked_until_ms >= REACH.now_ms
    assert resolved.is_partial


def test_the_end_of_the_history_is_where_a_window_may_begin() -> None:
    assert resolve_window(REACH, When(ms=C), None, allow_partial=False) == ResolvedWindow(Window(C, C), C)


def test_a_window_may_be_empty_but_not_reversed() -> None:
    assert resolve_window(REACH, When(ms=5), When(ms=5), allow_partial=False).window == Window(5, 5)
    with pytest.raises(WrongUsageError, match="Exchange --from and --to"):
        resolve_window(REACH, When(ms=6), When(ms=5), allow_partial=False)


def test_now_is_the_last_millisecond_that_is_complete() -> None:
    up_to_date = HistoryExtent(complete_until_ms=C, now_ms=C)
    assert resolve_instant(up_to_date, When(ago_ms=0), allow_partial=False) == (C - 1, False)
    assert resolve_instant(REACH, None, allow_partial=False) == (C - 1, False)


def test_a_millisecond_that_is_not_over_yet_is_not_answered() -> None:
    assert resolve_instant(REACH, When(ms=C - 1), allow_partial=False) == (C - 1, False)
    with pytest.raises(NegativeAnswerError, match="is not before that"):
        resolve_instant(REACH, When(ms=C), allow_partial=False)
    assert resolve_instant(REACH, When(ms=C), allow_partial=True) == (C - 1, True)


def test_a_version_is_of_the_newest_era_unless_another_is_named() -> None:
    extent = HistoryExtent(complete_until_ms=C, now_ms=C, newest=(1, 9))
    assert instant_of_version(extent, 9, None) == Instant(ord=ERA_SHIFT + 9)
    assert instant_of_version(extent, 500, 0) == Instant(ord=500)
    with pytest.raises(NegativeAnswerError, match="up to version 9 of era 1"):
        instant_of_version(extent, 10, None)


def test_before_the_lakes_first_entry_it_says_since_when_something_is_known() -> None:
    extent = HistoryExtent(complete_until_ms=C, now_ms=C, since_ms=50 * DAY_MS, newest=(1, 9), first=(0, 17))
    begins = r"is known: the lake holds the history since version 17 at 1970-02-20T00:00:00.000Z"
    for at in (When(ms=50 * DAY_MS - 1), When(ago_ms=60 * DAY_MS)):
        with pytest.raises(NegativeAnswerError, match=begins):
            resolve_instant(extent, at, allow_partial=True)
    assert resolve_instant(extent, When(ms=50 * DAY_MS), allow_partial=False) == (50 * DAY_MS, False)
    with pytest.raises(NegativeAnswerError, match=f"Of version 16 nothing {begins}"):
        instant_of_version(extent, 16, 0)
    assert instant_of_version(extent, 17, 0) == Instant(ord=17)
    assert instant_of_version(extent, 3, None) == Instant(ord=ERA_SHIFT + 3)
