"""The verdicts of the cluster tests can fail. These tests need no cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.kubernetes.load.record import Failure, Kind, Plan, Registration, Window, WrongAnswer
from tests.kubernetes.verdicts import (
    assert_enough_traffic,
    assert_no_lookup_failed,
    assert_one_retry_suffices,
    assert_unnoticed,
    assert_writes_resumed,
)

PLAN = Plan(clients_of_each_kind=10, lookups_per_second=3, brokers=6, register_period_s=5)
GOOD = Window(
    plan=PLAN,
    answered={"go_away": 295, "legacy": 290},
    failures=[],
    lost=[],
    wrong_answers=[],
    moves=1,
    slowest_s=0,
    registrations=[Registration(at, at, f"load-{at % 6}", "ok") for at in range(12)],
    writes=[],
    start=100.0,
    seconds=10.0,
)
WRONG_ANSWER = WrongAnswer(101.0, "one", "no such topic")


def failures(*tries: tuple[str, Kind, int]) -> list[Failure]:
    return [Failure(101.0, client, kind, "lost", attempt, 100.0) for client, kind, attempt in tries]


def writes(*outcomes: tuple[float, str]) -> list[Registration]:
    return [Registration(at - 0.01, at, "load-writer", outcome) for at, outcome in outcomes]


def last_one_failed() -> list[Registration]:
    return [*GOOD.registrations[:-1], Registration(11, 11, "load-5", "1")]


def test_a_healthy_window_passes_all_verdicts() -> None:
    assert_enough_traffic(GOOD)
    assert_no_lookup_failed(GOOD)
    assert_unnoticed(GOOD)
    assert_one_retry_suffices(GOOD, connected=0)


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, answered={"go_away": 0, "legacy": 0}),
        replace(GOOD, answered={"go_away": 295, "legacy": 239}),
        replace(GOOD, registrations=[]),
        replace(GOOD, registrations=GOOD.registrations[:8]),
        replace(GOOD, registrations=last_one_failed()),
        replace(GOOD, wrong_answers=[WRONG_ANSWER]),
        replace(GOOD, lost=failures(("go_away-1", "go_away", 60))),
    ],
    ids=["no lookups", "few of one kind", "no registrations", "few registrations", "one failed", "wrong", "lost"],
)
@pytest.mark.parametrize(
    "verdict",
    [assert_no_lookup_failed, assert_unnoticed, lambda window: assert_one_retry_suffices(window, connected=9)],
    ids=["no lookup failed", "unnoticed", "one retry suffices"],
)
def test_every_verdict_rejects_a_bad_window(verdict: Callable[[Window], None], bad: Window) -> None:
    with pytest.raises(AssertionError):
        verdict(bad)


def test_without_a_store_registrations_may_fail_but_must_be_sent() -> None:
    failed = [replace(registration, outcome="1") for registration in GOOD.registrations]

    assert_no_lookup_failed(replace(GOOD, registrations=failed), store_available=False)
    with pytest.raises(AssertionError, match="registrations sent"):
        assert_no_lookup_failed(replace(GOOD, registrations=failed[:8]), store_available=False)


def test_a_failed_try_of_a_legacy_client_is_a_failed_lookup() -> None:
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(replace(GOOD, failures=failures(("legacy-1", "legacy", 1))))


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, failures=failures(("go_away-1", "go_away", 1))),
        replace(GOOD, failures=failures(("legacy-1", "legacy", 1), ("legacy-1", "legacy", 2))),
        replace(GOOD, moves=0),
        replace(GOOD, registrations=[Registration(0, 0, "load-0", "late"), *GOOD.registrations]),
    ],
    ids=["a GO_AWAY client failed", "a second try failed", "no client moved", "a registration failed"],
)
def test_a_planned_change_may_cost_only_legacy_clients_one_try(bad: Window) -> None:
    assert_unnoticed(replace(GOOD, failures=failures(("legacy-1", "legacy", 1))))
    with pytest.raises(AssertionError):
        assert_unnoticed(bad)


def test_a_failure_may_cost_each_connected_client_one_first_try() -> None:
    two = failures(("go_away-1", "go_away", 1), ("go_away-1", "go_away", 2), ("legacy-1", "legacy", 1))
    twice = failures(("go_away-1", "go_away", 1), ("go_away-1", "go_away", 1))

    assert_one_retry_suffices(replace(GOOD, failures=two), connected=2)
    with pytest.raises(AssertionError, match="2 first tries failed, 1 were connected"):
        assert_one_retry_suffices(replace(GOOD, failures=two), connected=1)
    with pytest.raises(AssertionError, match="more than once"):
        assert_one_retry_suffices(replace(GOOD, failures=twice), connected=2)


def test_writes_must_fail_and_resume_in_time() -> None:
    window = replace(GOOD, writes=writes((100.1, "ok"), (100.5, "1"), (102.0, "late"), (102.5, "ok"), (102.6, "ok")))

    outage = assert_writes_resumed(window, within_s=2.6)

    assert outage.failed == 2
    assert outage.last_failure_s == pytest.approx(2.0)
    assert outage.resumed_s == pytest.approx(2.5)
    assert outage.longest_gap_s == pytest.approx(2.4)
    with pytest.raises(AssertionError):
        assert_writes_resumed(window, within_s=2.4)


def test_the_longest_gap_counts_from_the_windows_start() -> None:
    window = replace(GOOD, writes=writes((100.2, "1"), (103.0, "ok"), (103.1, "ok")))

    assert window.write_outage().longest_gap_s == pytest.approx(3.0)


@pytest.mark.parametrize("outcomes", [[], [(100.1, "ok"), (100.2, "ok")], [(100.1, "ok"), (100.2, "1")]])
def test_writes_that_never_failed_or_never_resumed_are_rejected(outcomes: list[tuple[float, str]]) -> None:
    with pytest.raises(AssertionError):
        assert_writes_resumed(replace(GOOD, writes=writes(*outcomes)), within_s=60)
