"""The verdicts of the proof can be otherwise. Runs without a cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.kubernetes.load.record import Blank, Failure, Kind, Plan, Registration, Window
from tests.kubernetes.verdicts import (
    assert_a_retry_is_enough,
    assert_enough_was_asked,
    assert_lookups_go_on,
    assert_nobody_noticed,
    assert_writes_were_refused_and_are_back,
)

PLAN = Plan(clients_of_each_kind=10, lookups_per_second=3, brokers=6, register_period_s=5)
GOOD = Window(
    plan=PLAN,
    answered={"follows": 295, "retries": 290},
    failures=[],
    lost=[],
    blanks=[],
    moves=1,
    slowest_s=0,
    registrations=[Registration(at, at, f"load-{at % 6}", "ok") for at in range(12)],
    writes=[],
    began=100.0,
    seconds=10.0,
)
BLANK = Blank(101.0, "one", "no such topic")


def failures(*tries: tuple[str, Kind, int]) -> list[Failure]:
    return [Failure(101.0, who, kind, "lost", attempt, 100.0) for who, kind, attempt in tries]


def writes(*heard: tuple[float, str]) -> list[Registration]:
    return [Registration(at - 0.01, at, "load-writer", how) for at, how in heard]


def last_one_refused() -> list[Registration]:
    return [*GOOD.registrations[:-1], Registration(11, 11, "load-5", "1")]


def test_a_scenario_in_which_all_is_well_passes() -> None:
    assert_enough_was_asked(GOOD)
    assert_lookups_go_on(GOOD)
    assert_nobody_noticed(GOOD)
    assert_a_retry_is_enough(GOOD, at_most=0)


@pytest.mark.parametrize(
    "spoiled",
    [
        replace(GOOD, answered={"follows": 0, "retries": 0}),
        replace(GOOD, answered={"follows": 295, "retries": 239}),
        replace(GOOD, registrations=[]),
        replace(GOOD, registrations=GOOD.registrations[:8]),
        replace(GOOD, registrations=last_one_refused()),
        replace(GOOD, blanks=[BLANK]),
        replace(GOOD, lost=failures(("follows-1", "follows", 60))),
    ],
    ids=["no lookups", "few of one kind", "no registrations", "few registrations", "one not taken", "blank", "lost"],
)
@pytest.mark.parametrize(
    "verdict",
    [assert_lookups_go_on, assert_nobody_noticed, lambda seen: assert_a_retry_is_enough(seen, at_most=9)],
    ids=["lookups go on", "nobody noticed", "a retry is enough"],
)
def test_no_verdict_lets_pass(verdict: Callable[[Window], None], spoiled: Window) -> None:
    with pytest.raises(AssertionError):
        verdict(spoiled)


def test_without_a_store_no_registration_need_be_taken_but_all_must_be_tried() -> None:
    refused = [replace(one, how="1") for one in GOOD.registrations]

    assert_lookups_go_on(replace(GOOD, registrations=refused), store_is_there=False)
    with pytest.raises(AssertionError, match="registrations were tried"):
        assert_lookups_go_on(replace(GOOD, registrations=refused[:8]), store_is_there=False)


def test_lookups_that_go_on_have_no_failed_try() -> None:
    with pytest.raises(AssertionError):
        assert_lookups_go_on(replace(GOOD, failures=failures(("retries-1", "retries", 1))))


@pytest.mark.parametrize(
    "spoiled",
    [
        replace(GOOD, failures=failures(("follows-1", "follows", 1))),
        replace(GOOD, failures=failures(("retries-1", "retries", 1), ("retries-1", "retries", 2))),
        replace(GOOD, moves=0),
        replace(GOOD, registrations=[Registration(0, 0, "load-0", "late"), *GOOD.registrations]),
    ],
    ids=["who follows failed", "a second try failed", "nobody was told to move", "a registration failed"],
)
def test_what_is_announced_may_cost_others_one_try_and_nobody_else_any(spoiled: Window) -> None:
    assert_nobody_noticed(replace(GOOD, failures=failures(("retries-1", "retries", 1))))
    with pytest.raises(AssertionError):
        assert_nobody_noticed(spoiled)


def test_a_blow_may_cost_each_that_was_connected_one_first_try() -> None:
    two = failures(("follows-1", "follows", 1), ("follows-1", "follows", 2), ("retries-1", "retries", 1))
    twice = failures(("follows-1", "follows", 1), ("follows-1", "follows", 1))

    assert_a_retry_is_enough(replace(GOOD, failures=two), at_most=2)
    with pytest.raises(AssertionError, match="2 first tries failed, and 1 were connected"):
        assert_a_retry_is_enough(replace(GOOD, failures=two), at_most=1)
    with pytest.raises(AssertionError, match="more than once"):
        assert_a_retry_is_enough(replace(GOOD, failures=twice), at_most=2)


def test_writes_must_have_been_refused_and_be_back_in_time() -> None:
    seen = replace(GOOD, writes=writes((100.1, "ok"), (100.5, "1"), (102.0, "late"), (102.5, "ok"), (102.6, "ok")))

    outage = assert_writes_were_refused_and_are_back(seen, within_s=2.6)

    assert outage.refused == 2
    assert outage.last_refusal_s == pytest.approx(2.0)
    assert outage.back_s == pytest.approx(2.5)
    assert outage.longest_pause_s == pytest.approx(2.4)
    with pytest.raises(AssertionError):
        assert_writes_were_refused_and_are_back(seen, within_s=2.4)


def test_the_time_without_writes_begins_with_the_blow_at_the_latest() -> None:
    seen = replace(GOOD, writes=writes((100.2, "1"), (103.0, "ok"), (103.1, "ok")))

    assert seen.outage().longest_pause_s == pytest.approx(3.0)


@pytest.mark.parametrize("heard", [[], [(100.1, "ok"), (100.2, "ok")], [(100.1, "ok"), (100.2, "1")]])
def test_writes_that_were_never_refused_or_never_came_back_are_told(heard: list[tuple[float, str]]) -> None:
    with pytest.raises(AssertionError):
        assert_writes_were_refused_and_are_back(replace(GOOD, writes=writes(*heard)), within_s=60)
