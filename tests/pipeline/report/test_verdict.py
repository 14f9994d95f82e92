"""The two answers at the top."""

from dataclasses import replace
from typing import Any

import pytest

from routebook_pipeline.report.summary import Word, objective, trust
from tests.pipeline.report.sample import fleet

FLEET = fleet()
INTEGRITY = FLEET.integrity[0]
WELL = replace(
    FLEET, availability_by_cluster=[{**row, "met": True, "spent_ms": 0} for row in FLEET.availability_by_cluster]
)


def test_one_cluster_short_is_a_no_that_names_it() -> None:
    given = objective(FLEET)
    assert given.word is Word.NO
    assert given.reasons[0] == "1 of 4 clusters fall short of 99.95 %."
    assert given.reasons[1].startswith("Lowest: telemetry with 99.")


def test_all_met_is_a_yes_with_what_is_left() -> None:
    assert objective(WELL).word is Word.YES
    assert objective(WELL).reasons == ("All 4 clusters meet 99.95 %.", "0 % of the error budget is spent.")


def test_without_a_broker_there_is_nothing_to_judge() -> None:
    assert objective(replace(FLEET, availability_by_cluster=[])).word is Word.NOTHING


def test_a_whole_history_is_trusted() -> None:
    assert trust(FLEET).word is Word.YES
    (era,) = FLEET.integrity
    assert trust(replace(FLEET, integrity=[{**era, "entries": 1}])).reasons == ("The one change of this time is here.",)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"missing": 12, "ok": False}, "12 changes are missing from the history."),
        ({"forks": 1, "ok": False}, "The store lost its last changes or was emptied, once."),
        ({"unreadable": {"utf8": 2, "json": 1}, "ok": False}, "3 changes are not readable."),
        ({"unreadable": {"utf8": 1}, "ok": False}, "1 change is not readable."),
        ({"duplicates": 4, "ok": False}, "4 changes are here more than once."),
        ({"ok": False}, "The versions of the changes do not add up."),
    ],
)
def test_what_is_missing_is_a_no(changed: dict[str, Any], reason: str) -> None:
    given = trust(replace(FLEET, integrity=[{**INTEGRITY, **changed}]))
    assert given.word is Word.NO
    assert given.reasons == (reason,)


def test_a_window_that_was_cut_wants_care() -> None:
    given = trust(replace(FLEET, asked_until_ms=FLEET.window.end_ms + 1))
    assert given.word is Word.CARE
    assert given.reasons == ("The history reaches only to 2026-11-15 00:00:00; asked was for more.",)


def test_unknown_and_paused_time_want_care() -> None:
    row = {**FLEET.availability_by_cluster[0], "unknown_ms": 1, "up_ms": 3, "unplanned_ms": 0, "paused_ms": 61_000}
    given = trust(replace(FLEET, availability_by_cluster=[row]))
    assert given.word is Word.CARE
    assert given.reasons == (
        "For 25 % of the time nobody knows which brokers were up.",
        "The service itself could not receive heartbeats for 1 min 01 s.",
    )


def test_no_change_at_all_wants_care() -> None:
    assert trust(replace(FLEET, integrity=[])).word is Word.CARE
