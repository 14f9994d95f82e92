"""3 `availability`. The expected values are computed by hand, in seconds of a window from 1,000 s to 2,000 s."""

import pytest
from pyspark.sql import Row, SparkSession

from routebook_pipeline.history import History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms import availability
from tests.pipeline.scenario import Scenario

S = 1_000
WINDOW = Window(1_000 * S, 2_000 * S)
Rows = dict[tuple[object, ...], Row]


def make_scenario() -> Scenario:
    scenario = Scenario()
    scenario.registered(seat="whole/b/0", at=500 * S)
    scenario.registered(seat="crash/b/0", at=500 * S)
    scenario.registered(seat="crash/b/1", at=500 * S)
    scenario.registered(seat="deploy/b/0", at=500 * S)
    scenario.registered(seat="before/b/0", at=500 * S)
    scenario.removed("expired", "before/b/0", at=900 * S)
    scenario.registered(seat="late/b/1", at=1_900 * S)
    scenario.removed("expired", "crash/b/0", at=1_200 * S)
    scenario.removed("unregistered", "crash/b/0", at=1_250 * S)  # the first cause counts
    scenario.registered(seat="crash/b/0", at=1_300 * S)
    scenario.removed("unregistered", "deploy/b/0", at=1_400 * S)
    scenario.removed("expired", "deploy/b/0", at=1_450 * S)
    scenario.registered(seat="deploy/b/0", at=1_500 * S, kind=Kind.BROKER_CHANGED)
    # A replaced address: codes 12 and 10 in the same step.
    scenario.registered(seat="replaced/b/0", at=1_500 * S, addr="127.0.0.1:1")
    scenario.removed("replaced", "replaced/b/0", at=1_600 * S)
    scenario.registered(seat="replaced/b/0", at=1_600 * S, addr="127.0.0.2:1")
    scenario.removed("expired", "crash/b/1", at=1_990 * S)
    scenario.removed("expired", "crash/b/0", at=1_995 * S)
    scenario.entry(Kind.EXPIRY_PAUSED, at=1_700 * S, from_ms=900 * S, to_ms=1_010 * S)
    scenario.entry(Kind.EXPIRY_PAUSED, at=1_700 * S, from_ms=1_005 * S, to_ms=1_020 * S)
    scenario.entry(Kind.EXPIRY_PAUSED, at=1_700 * S, from_ms=1_050 * S, to_ms=1_060 * S)
    scenario.removed("expired", "whole/b/0", at=2_000 * S)  # at the end of the window, so it does not count
    return scenario


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> History:
    return make_scenario().history(spark)


@pytest.fixture(scope="module")
def seats(history: History) -> Rows:
    return {(row.cluster, row.broker_id): row for row in availability.by_seat(history, WINDOW).collect()}


@pytest.fixture(scope="module")
def groups(history: History) -> Rows:
    return {(row.cluster,): row for row in availability.by_group(history, WINDOW).collect()}


@pytest.fixture(scope="module")
def clusters(history: History) -> Rows:
    return {(row.cluster,): row for row in availability.by_cluster(history, WINDOW).collect()}


def lengths(row: Row) -> tuple[int, ...]:
    return tuple(value // S for value in (row.up_ms, row.unplanned_ms, row.planned_ms, row.unknown_ms))


def test_a_seat_is_up_until_an_entry_removes_it(seats: Rows) -> None:
    assert lengths(seats["whole", 0]) == (1_000, 0, 0, 0)
    assert seats["whole", 0].availability == 1.0


def test_the_first_cause_of_a_down_counts(seats: Rows) -> None:
    assert lengths(seats["crash", 0]) == (895, 105, 0, 0)
    assert lengths(seats["deploy", 0]) == (900, 0, 100, 0)
    assert seats["deploy", 0].availability == 1.0
    assert seats["deploy", 0].availability_all == 0.9


def test_a_state_that_began_before_the_window_counts_inside_it(seats: Rows) -> None:
    assert lengths(seats["before", 0]) == (0, 1_000, 0, 0)
    assert seats["before", 0].availability == 0.0
    assert seats["before", 0].since_ms == 1_000 * S


def test_time_before_the_first_evidence_does_not_count(seats: Rows) -> None:
    assert lengths(seats["late", 1]) == (100, 0, 0, 0)
    assert seats["late", 1].since_ms == 1_900 * S


def test_replacing_an_address_in_one_step_is_no_downtime(seats: Rows) -> None:
    assert lengths(seats["replaced", 0]) == (500, 0, 0, 0)


def test_a_group_is_readable_while_any_seat_is_up(groups: Rows) -> None:
    crash = groups["crash",]
    assert lengths(crash) == (895, 105, 0, 0)
    assert (crash.readable_ms, crash.unreadable_ms, crash.readable_unknown_ms) == (995 * S, 5 * S, 0)
    assert crash.readable == 0.995


def test_a_group_without_a_master_has_null_for_its_writable_times(groups: Rows) -> None:
    late = groups["late",]
    assert (late.up_ms, late.unplanned_ms, late.availability) == (None, None, None)
    assert (late.readable_ms, late.readable) == (100 * S, 1.0)


def test_the_times_of_a_cluster_are_the_sum_of_its_masters(clusters: Rows) -> None:
    crash = clusters["crash",]
    assert (crash.groups, *lengths(crash)) == (1, 895, 105, 0, 0)
    assert (crash.worst_group, crash.worst_availability, crash.met) == ("b", 0.895, False)
    assert crash.budget_ms == pytest.approx(500)
    assert crash.spent_ms == 105 * S
    assert clusters["whole",].met is True
    late = clusters["late",]
    assert (late.groups, late.up_ms, late.availability, late.worst_group, late.met) == (0, 0, None, None, None)


def test_overlapping_pauses_count_once_and_only_inside_the_window(clusters: Rows) -> None:
    assert {row.paused_ms for row in clusters.values()} == {30 * S}
