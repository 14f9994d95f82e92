"""The oracle itself, with scenarios that are small enough to be computed by hand. Times are milliseconds from 0."""

from collections.abc import Sequence
from typing import Any

import pytest

from routebook_pipeline.history import DAY_MS, HOUR_MS, Instant, Thresholds, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle import (
    availability,
    capacity,
    churn,
    exposure,
    failovers,
    failures,
    heartbeat_gaps,
    integrity,
    routes,
)
from tests.pipeline.scenario import Row, Scenario, item, removed_item

A, B = "127.0.0.1:10911", "127.0.0.2:10911"
MASTER, SLAVE = "c/b/0", "c/b/1"


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def picked(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


TIMES = ("up_ms", "unplanned_ms", "planned_ms", "unknown_ms")


# 1 route_at


def route_of(scenario: Scenario, ms: int = 10**9) -> list[tuple[Any, ...]]:
    rows = routes.routes_at(scenario, Instant(ms=ms))
    return picked(rows, "topic", "broker", "write_queues", "perm", "addresses")


def test_a_route_has_the_last_item_and_the_addresses_that_are_up(scenario: Scenario) -> None:
    scenario.registered(item("t", write=4), seat=MASTER, addr=A, at=1)
    scenario.registered(seat=SLAVE, addr=B, at=2)
    scenario.queues(item("t", write=16), at=3)
    scenario.removed(seat=SLAVE, addr=B, at=4)
    assert route_of(scenario, 0) == []
    assert route_of(scenario, 2) == [("t", "b", 4, 6, {0: A, 1: B})]
    assert route_of(scenario, 3) == [("t", "b", 16, 6, {0: A, 1: B})]
    assert route_of(scenario, 4) == [("t", "b", 16, 6, {0: A})]


def test_a_removed_topic_and_a_removed_group_have_no_route(scenario: Scenario) -> None:
    scenario.registered(item("t"), item("u"), at=1)
    scenario.queues(removed_item("t"), at=2)
    assert [row[0] for row in route_of(scenario)] == ["u"]
    scenario.removed(group_removed=True, at=3)
    assert route_of(scenario) == []
    scenario.registered(item("v"), at=4)
    assert [row[0] for row in route_of(scenario)] == ["v"]


def test_write_permissions_after_an_item_apply_in_their_order(scenario: Scenario) -> None:
    scenario.registered(item("t", perm=7), at=1)
    scenario.write_permission("clear-write", at=2)
    assert route_of(scenario)[0][3] == 5
    scenario.write_permission("set", at=3)
    assert route_of(scenario)[0][3] == 6
    scenario.write_permission("clear-write", at=4)
    assert route_of(scenario)[0][3] == 4
    scenario.queues(item("t", perm=6), at=5)
    assert route_of(scenario)[0][3] == 6


def test_a_complete_baseline_removes_what_it_does_not_name(scenario: Scenario) -> None:
    scenario.registered(item("named"), item("absent"), seat=MASTER, addr=A, at=1)
    scenario.registered(seat=SLAVE, addr=B, at=1)
    scenario.entry(Kind.BASELINE_BEGIN, at=2)
    scenario.registered(seat=MASTER, addr=A, kind=Kind.BASELINE_SEAT)
    scenario.entry(Kind.BASELINE_QUEUES, item("named"), cluster="c", broker="b")
    scenario.queues(item("meanwhile"))
    assert len(route_of(scenario)) == 3
    scenario.entry(Kind.BASELINE_END, at=3)
    assert [(row[0], row[4]) for row in route_of(scenario)] == [("meanwhile", {0: A}), ("named", {0: A})]


def test_a_baseline_with_a_hole_in_it_repairs_nothing(scenario: Scenario) -> None:
    scenario.registered(item("t"), at=1)
    scenario.entry(Kind.BASELINE_BEGIN, at=2)
    scenario.hole(1, at=3)
    scenario.entry(Kind.BASELINE_END, at=4)
    (row,) = routes.routes_at(scenario, Instant(ms=4))
    assert (row["addresses"], row["certain"]) == ({}, False)
    assert (row["doubt_from_version"], row["doubt_to_version"]) == (3, 3)
    scenario.entry(Kind.BASELINE_BEGIN, at=5)
    scenario.registered(item("t"), kind=Kind.BASELINE_SEAT)
    scenario.entry(Kind.BASELINE_END, at=6)
    (row,) = routes.routes_at(scenario, Instant(ms=6))
    assert (row["certain"], row["doubt_from_version"]) == (True, None)


def test_an_instant_can_be_a_version(scenario: Scenario) -> None:
    scenario.registered(item("t", write=4), at=1)
    scenario.queues(item("t", write=8), at=1)
    first, second = (row["ord"] for row in scenario.changes if row["row"] == 0)
    assert routes.routes_at(scenario, Instant(ord=first))[0]["write_queues"] == 4
    assert routes.routes_at(scenario, Instant(ord=second))[0]["write_queues"] == 8


# 2 route_diff


def test_a_difference_lists_the_entries_that_caused_it(scenario: Scenario) -> None:
    scenario.registered(item("kept"), item("smaller"), at=1)
    put = scenario.queues(item("smaller", write=1), item("new"), at=2)
    scenario.entry(Kind.KV_PUT, at=3)
    rows = routes.route_diff(scenario, Instant(ms=1), Instant(ms=3))
    assert picked(rows, "topic", "difference", "write_queues_before", "write_queues_after") == [
        ("new", "added", None, 8),
        ("smaller", "changed", 8, 1),
    ]
    assert [[entry["version"] for entry in row["entries"]] for row in rows] == [[put], [put]]
    assert [row["entry_count"] for row in rows] == [1, 1], "the group has no entry of its own, so it has no row"
    assert rows[0]["entries"][0]["cause"] == "register-topic"


# 3 availability


def test_the_time_of_a_seat_is_divided_among_its_states(scenario: Scenario) -> None:
    scenario.registered(at=100)
    scenario.removed("expired", at=200)
    scenario.removed("unregistered", at=210)
    scenario.registered(at=230)
    scenario.removed("operator", at=300)
    scenario.registered(at=350)
    (seat,) = availability.by_seat(scenario, Window(0, 400))
    assert [seat[name] for name in TIMES] == [100 + 70 + 50, 30, 50, 0]
    assert seat["since_ms"] == 100
    assert seat["availability"] == 220 / 250
    assert seat["availability_all"] == 220 / 300
    (clipped,) = availability.by_seat(scenario, Window(190, 205))
    assert [clipped[name] for name in TIMES] == [10, 5, 0, 0]
    assert clipped["since_ms"] == 190


def test_entries_at_the_end_of_the_window_do_not_count(scenario: Scenario) -> None:
    scenario.registered(at=100)
    scenario.removed(at=200)
    assert availability.by_seat(scenario, Window(0, 100)) == []
    (seat,) = availability.by_seat(scenario, Window(199, 200))
    assert [seat[name] for name in TIMES] == [1, 0, 0, 0]


def test_unknown_time_begins_at_the_last_entry_before_the_hole(scenario: Scenario) -> None:
    scenario.registered(at=100)
    scenario.entry(Kind.KV_PUT, at=150)
    scenario.hole(5, at=180)
    scenario.registered(at=300)
    (seat,) = availability.by_seat(scenario, Window(0, 400))
    assert [seat[name] for name in TIMES] == [50 + 100, 0, 0, 150]


def test_an_outage_counts_until_retire_after_and_across_baselines(scenario: Scenario) -> None:
    scenario.registered(at=0)
    scenario.removed(at=100)
    scenario.entry(Kind.BASELINE_BEGIN, at=150)
    scenario.entry(Kind.BASELINE_END, at=160)
    scenario.entry(Kind.KV_PUT, at=999)
    short = Thresholds(retire_after_ms=500)
    assert availability.by_seat(scenario, Window(0, 1000), short)[0]["unplanned_ms"] == 500
    assert availability.by_seat(scenario, Window(550, 1000), short)[0]["unplanned_ms"] == 50
    assert availability.by_seat(scenario, Window(700, 1000), short)[0]["unplanned_ms"] == 0


def test_an_up_seat_that_a_baseline_does_not_name_no_longer_counts(scenario: Scenario) -> None:
    scenario.registered(at=0)
    scenario.entry(Kind.BASELINE_BEGIN, at=100)
    scenario.entry(Kind.BASELINE_END, at=120)
    (seat,) = availability.by_seat(scenario, Window(0, 400))
    assert [seat[name] for name in TIMES] == [120, 0, 0, 0]


def test_a_group_is_readable_while_any_seat_is_up(scenario: Scenario) -> None:
    scenario.registered(seat=MASTER, at=0)
    scenario.registered(seat=SLAVE, addr=B, at=0)
    scenario.removed("expired", MASTER, at=100)
    scenario.removed("operator", SLAVE, B, at=150)
    scenario.registered(seat=SLAVE, addr=B, at=180)
    (group,) = availability.by_group(scenario, Window(0, 200))
    assert [group[name] for name in TIMES] == [100, 100, 0, 0]
    assert (group["readable_ms"], group["unreadable_ms"], group["readable_unknown_ms"]) == (170, 30, 0)
    assert group["readable"] == 0.85


def test_the_times_of_a_cluster_are_the_sum_of_its_masters(scenario: Scenario) -> None:
    scenario.registered(seat="c/good/0", at=0)
    scenario.registered(seat="c/bad/0", at=0)
    scenario.registered(seat="c/slaves/1", at=0)
    scenario.removed("expired", "c/bad/0", at=900)
    scenario.entry(Kind.EXPIRY_PAUSED, from_ms=100, to_ms=300, at=950)
    scenario.entry(Kind.EXPIRY_PAUSED, from_ms=200, to_ms=400, at=960)
    (cluster,) = availability.by_cluster(scenario, Window(0, 1000))
    assert picked([cluster], "groups", "up_ms", "spent_ms", "worst_group", "paused_ms", "met") == [
        (2, 1900, 100, "bad", 300, False)
    ]
    assert cluster["worst_availability"] == 0.9
    assert cluster["budget_ms"] == pytest.approx(1.0)


# 4 failures, 5 flaps


def test_failures_count_in_the_window_in_which_they_begin(scenario: Scenario) -> None:
    scenario.registered(at=0)
    scenario.removed("expired", at=100)
    scenario.registered(at=160)
    scenario.removed("connection-lost", at=200)
    scenario.registered(at=220)
    scenario.removed("unregistered", at=300)
    scenario.registered(at=310)
    scenario.removed("expired", at=400)
    (seat,) = failures.by_seat(scenario, Window(100, 500))
    assert picked([seat], "unplanned", "planned", "unfinished", "up_ms", "mttr_ms") == [(3, 1, 1, 210, 40)]
    assert seat["mtbf_ms"] == 70
    assert seat["causes"] == {"expired": 2, "connection-lost": 1, "unregistered": 1}
    (cluster,) = failures.by_cluster(scenario, Window(101, 500))
    assert picked([cluster], "broker", "unplanned", "mttr_ms") == [(None, 2, 20)]


def test_flaps_are_short_downs_and_episodes_are_series_of_downs(scenario: Scenario) -> None:
    scenario.registered(at=0)
    for start, length in ((1000, 59_999), (600_000, 60_000), (1_200_000, 10), (1_800_001, 10)):
        scenario.removed(at=start)
        scenario.registered(at=start + length)
    (seat,) = failures.flaps_by_seat(scenario, Window(0, 2_000_000))
    assert seat["flaps"] == 3
    assert seat["episodes"] == [{"first_ms": 1000, "last_ms": 1_200_000, "number": 3}]


# 6 heartbeat_gaps


def test_percentiles_are_bucket_edges_and_never_above_the_longest_gap(scenario: Scenario) -> None:
    scenario.heartbeat_gaps({8: 90, 16: 9}, MASTER, to_ms=100, max_ms=390)
    scenario.heartbeat_gaps({72: 1}, SLAVE, to_ms=199, max_ms=48_000)
    scenario.heartbeat_gaps({127: 1000}, SLAVE, to_ms=200, max_ms=10**7)
    (cluster,) = heartbeat_gaps.by_cluster(scenario, Window(100, 200))
    assert picked([cluster], "number", "max_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms") == [
        (100, 48_000, 200.0, 200.0, 400.0, 48_000.0)
    ]
    assert (cluster["late"], cluster["late_share"]) == (1, 0.01)
    by_seat = {row["broker_id"]: row for row in heartbeat_gaps.by_seat(scenario, Window(100, 200))}
    assert by_seat[0]["p99_ms"] == 390.0


def test_a_bucket_is_late_if_all_its_gaps_are() -> None:
    edges = {bucket: 100 * 2 ** ((bucket - 1) / 8) for bucket in range(1, 128)}
    for bucket, lower in edges.items():
        assert heartbeat_gaps.is_late(bucket, Thresholds()) == (lower >= 45_000)
    assert not heartbeat_gaps.is_late(0, Thresholds())


def test_a_planned_hand_over_is_neither_an_absence_nor_a_flap(scenario: Scenario) -> None:
    for at in (100, 200, 300):
        scenario.registered(at=at, addr=f"127.0.0.1:{at}")
        scenario.removed("replaced", addr=f"127.0.0.1:{at}", at=at + 100)
    scenario.registered(at=400, addr="127.0.0.1:400")
    assert failures.flaps_by_seat(scenario, Window(0, 1_000)) == []
    (row,) = failures.by_seat(scenario, Window(0, 1_000))
    assert (row["planned"], row["unplanned"], row["causes"]) == (0, 0, {})


# 7 churn


def test_churn_compares_two_sets_of_topics(scenario: Scenario) -> None:
    scenario.registered(item("kept"), item("removed"), item("again"), at=1)
    scenario.queues(removed_item("removed"), at=100)
    scenario.queues(item("passing"), at=101)
    scenario.queues(removed_item("passing"), at=102)
    scenario.queues(item("new"), at=103)
    scenario.queues(item("kept", write=2), at=104)
    scenario.queues(item("kept", write=2, flags=1), at=105)
    scenario.queues(removed_item("again"), at=106)
    scenario.queues(item("again", write=1), at=107)
    (cluster,) = churn.by_cluster(scenario, Window(100, 200))
    names = ("topics_before", "topics_after", "created", "removed", "passing", "resized")
    assert picked([cluster], *names) == [(3, 3, 1, 1, 1, 1)]
    assert cluster["rate"] == pytest.approx(4 / 3)


# 8 capacity


def test_capacity_counts_writable_and_readable_queues(scenario: Scenario) -> None:
    scenario.registered(item("t", read=4, write=6), item("u", read=1, write=2), seat="c/one/0", at=1)
    scenario.registered(item("t", read=8, write=8), seat="c/headless/1", at=1)
    scenario.registered(item("t", read=2, write=8, perm=4), seat="c/closed/0", at=1)
    scenario.registered(item("t", read=2, write=24, perm=2), seat="c/four/0", at=1)
    (cluster,) = capacity.by_cluster(scenario, [1])
    names = ("write_capacity", "read_capacity", "groups", "mean", "peak", "top_topic", "top_share")
    assert picked([cluster], *names) == [(32, 15, 4, 8.0, 3.0, "t", 30 / 32)]
    assert cluster["cv"] == pytest.approx(((64 + 64 + 0 + 256) / 4) ** 0.5 / 8)
    assert cluster["gini"] == pytest.approx(2 * (3 * 8 + 4 * 24) / (4 * 32) - 5 / 4)


def test_midnights_lie_inside_the_window() -> None:
    assert capacity.midnights(Window(1, 2 * DAY_MS)) == [DAY_MS]
    assert capacity.midnights(Window(DAY_MS, 2 * DAY_MS + 1)) == [DAY_MS, 2 * DAY_MS]


# 9 exposure


def test_exposure_is_the_time_from_the_last_sign_of_life_to_the_removal(scenario: Scenario) -> None:
    scenario.registered(item("t", write=8), item("u", write=2), item("v", perm=4), seat=MASTER, at=1000)
    scenario.registered(seat=SLAVE, addr=B, at=1000)
    scenario.removed("connection-lost", SLAVE, B, lost_ms=9000, last_heartbeat_ms=2000, at=10_000)
    scenario.removed("expired", MASTER, last_heartbeat_ms=6000, at=12_000, group_removed=True)
    window = Window(0, HOUR_MS)
    (day,) = exposure.by_cluster(scenario, window)
    assert picked([day], "day", "number", "detection_ms", "p50_ms", "p95_ms", "max_ms") == [
        ("1970-01-01", 2, 7000, 1000, 6000, 6000)
    ]
    assert (day["client_mean_ms"], day["client_worst_ms"]) == (3500 + 15_000, 36_000)
    assert day["queue_seconds"] == 60
    (group,) = exposure.by_group(scenario, window)
    assert (group["exposed_ms"], group["queue_seconds"]) == (6000, 60)


# 10 failovers


def test_a_failover_is_a_new_address_in_the_masters_seat(scenario: Scenario) -> None:
    scenario.registered(seat=MASTER, addr=A, at=0)
    scenario.registered(seat=SLAVE, addr=B, at=0)
    scenario.removed("expired", MASTER, A, at=100)
    scenario.removed("moved", SLAVE, B, at=150)
    scenario.registered(seat=MASTER, addr=B, at=150)
    scenario.registered(seat=SLAVE, addr=A, at=160)
    scenario.registered(seat=MASTER, addr=B, kind=Kind.BROKER_CHANGED, at=170)
    scenario.removed("replaced", MASTER, B, at=200)
    scenario.registered(seat=MASTER, addr=A, at=200)
    rows = failovers.each(scenario, Window(0, 300))
    assert picked(rows, "ms", "from_address", "to_address", "gap_ms", "planned") == [
        (150, A, B, 50, False),
        (200, B, A, 0, True),
    ]
    (group,) = failovers.by_group(scenario, Window(120, 300))
    names = ("failovers", "planned", "gap_ms", "longest_gap_ms", "headless_ms")
    assert picked([group], *names) == [(2, 1, 50, 50, 30)]


# 12 integrity


def test_a_history_without_loss_is_ok(scenario: Scenario) -> None:
    scenario.registered(item("t"), at=1)
    scenario.entry(Kind.KV_PUT, at=2)
    (era,) = integrity.by_era(scenario, Window(0, 10), 7)
    assert picked([era], "first_version", "last_version", "entries", "ok", "complete_until_ms") == [(1, 2, 2, True, 7)]
    del scenario.changes[-1]
    scenario.entry(Kind.KV_PUT, at=3)
    assert not integrity.by_era(scenario, Window(0, 10), 7)[0]["ok"]


def test_every_fault_of_a_history_is_counted(scenario: Scenario) -> None:
    scenario.registered(at=1)
    scenario.hole(4, at=2)
    scenario.unreadable("json", at=3)
    scenario.changes.append(scenario.changes[0])
    scenario.fork(3, at=4)
    scenario.entry(Kind.KV_PUT, at=5)
    first, second = integrity.by_era(scenario, Window(0, 10), 7)
    assert picked([first], "last_version", "entries", "missing", "duplicates", "ok") == [(6, 2, 4, 1, False)]
    assert (first["holes"], first["unreadable"]) == ([{"from_version": 2, "to_version": 5}], {"json": 1})
    assert picked([second], "first_version", "entries", "forks", "ok") == [(3, 1, 1, False)]


def test_an_entry_is_late_if_it_is_older_than_the_end_of_an_earlier_batch(scenario: Scenario) -> None:
    scenario.entry(Kind.KV_PUT, at=10, ingested_ms=20)
    scenario.entry(Kind.KV_PUT, at=15, ingested_ms=20)
    scenario.entry(Kind.KV_PUT, at=16, ingested_ms=17)
    scenario.entry(Kind.KV_PUT, at=20, ingested_ms=30)
    assert integrity.by_era(scenario, Window(0, 100), 0)[0]["late"] == 1
