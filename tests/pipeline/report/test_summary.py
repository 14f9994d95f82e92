"""The two verdicts at the top of the page."""

from dataclasses import replace
from typing import Any

import pytest

from routebook_pipeline.report.summary import Word, objective, trust
from tests.pipeline.report.sample import fleet

FLEET = fleet()
INTEGRITY = FLEET.integrity[0]
ALL_MET = replace(
    FLEET, availability_by_cluster=[{**row, "met": True, "spent_ms": 0} for row in FLEET.availability_by_cluster]
)


def test_a_missed_objective_is_a_no_that_names_the_worst_cluster() -> None:
    verdict = objective(FLEET)
    assert verdict.word is Word.NO
    assert verdict.reasons[0] == "1 of 4 clusters misses the objective of 99.95 %."
    assert verdict.reasons[1].startswith("Lowest: telemetry with 99.")


def test_met_objectives_are_a_yes_with_the_spent_budget() -> None:
    verdict = objective(ALL_MET)
    assert verdict.word is Word.YES
    assert verdict.reasons == ("All 4 clusters meet the objective of 99.95 %.", "0 % of the error budget is spent.")


def test_without_brokers_there_is_no_verdict() -> None:
    assert objective(replace(FLEET, availability_by_cluster=[])).word is Word.NOTHING


def test_a_whole_history_can_be_trusted() -> None:
    assert trust(FLEET).word is Word.YES
    (era,) = FLEET.integrity
    verdict = trust(replace(FLEET, integrity=[{**era, "entries": 1}]))
    assert verdict.reasons == ("The only change of this period is present.",)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"missing": 12, "ok": False}, "12 changes are missing from the history."),
        ({"forks": 1, "ok": False}, "The store lost its last changes or was emptied, once."),
        ({"unreadable": {"utf8": 2, "json": 1}, "ok": False}, "3 changes are not readable."),
        ({"unreadable": {"utf8": 1}, "ok": False}, "1 change is not readable."),
        ({"duplicates": 4, "ok": False}, "4 changes are present more than once."),
        ({"ok": False}, "The version numbers do not add up."),
    ],
)
def test_a_faulty_history_cannot_be_trusted(changed: dict[str, Any], reason: str) -> None:
    verdict = trust(replace(FLEET, integrity=[{**INTEGRITY, **changed}]))
    assert verdict.word is Word.NO
    assert verdict.reasons == (reason,)


def test_a_window_that_was_cut_requires_care() -> None:
    verdict = trust(replace(FLEET, asked_until_ms=FLEET.window.end_ms + 1))
    assert verdict.word is Word.CARE
    assert verdict.reasons == ("The history ends at 2026-11-15 00:00:00, before the requested end.",)


def test_unknown_and_paused_time_require_care() -> None:
    row = {**FLEET.availability_by_cluster[0], "unknown_ms": 1, "up_ms": 3, "unplanned_ms": 0, "paused_ms": 61_000}
    verdict = trust(replace(FLEET, availability_by_cluster=[row]))
    assert verdict.word is Word.CARE
    assert verdict.reasons == (
        "For 25 % of the time it is unknown which brokers were up.",
        "The service itself could not receive heartbeats for 1 min 01 s.",
    )


def test_a_window_without_changes_requires_care() -> None:
    assert trust(replace(FLEET, integrity=[])).word is Word.CARE
