"""Questions 4 to 10 and 12 with one scenario. The expected values are computed by hand.

Every case has a cluster of its own (and brokers of its own where topics matter, since they belong to the broker name).
The window is 1,000 s to 2,000 s.
"""

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from routebook_pipeline.history import DAY_MS, History, Window
from routebook_pipeline.transforms import capacity, churn, exposure, failovers, failures, heartbeat_gaps, integrity
from tests.pipeline.scenario import Scenario, item, removed_item

pytestmark = pytest.mark.slow

S = 1_000
WINDOW = Window(1_000 * S, 2_000 * S)
A, B = "127.0.0.1:1", "127.0.0.2:1"


def make_scenario() -> Scenario:
    scenario = Scenario()
    scenario.registered(item("t", 8, 8), item("r", 4, 4, perm=4), seat="down/d/0", at=500 * S, addr=A)
    scenario.registered(seat="back/b/0", at=500 * S, addr=A)
    scenario.registered(seat="switch/b/0", at=500 * S, addr=A)
    scenario.registered(seat="switch/b/1", at=500 * S, addr=B)
    scenario.registered(
        item("kept", 4, 4), item("away", 4, 4), item("sized", 4, 4), seat="topics/t/0", at=900 * S, addr=A
    )
    scenario.registered(item("one", 4, 4), seat="even/b0/0", at=900 * S, addr=A)
    scenario.registered(item("one", 4, 4), item("two", 8, 8), seat="even/b1/0", at=900 * S, addr=B)
    scenario.registered(seat="even/b2/1", at=900 * S, addr=B)
    # Four DOWNs: three begin within ten minutes of the one before, and three are shorter than a minute.
    for start, end in ((1_000, 1_010), (1_100, 1_159), (1_200, 1_260), (1_900, 1_950)):
        cause = "unregistered" if start == 1_200 else "expired"
        scenario.removed(cause, "back/b/0", at=start * S, last_heartbeat_ms=None)
        scenario.registered(seat="back/b/0", at=end * S, addr=A)
    scenario.removed("connection-lost", "down/d/0", at=1_500 * S, lost_ms=1_490 * S, last_heartbeat_ms=1 * S)
    # The master is lost and comes back with another address; then it is replaced in one step.
    scenario.removed("expired", "switch/b/0", at=1_600 * S, last_heartbeat_ms=1_480 * S)
    scenario.registered(seat="switch/b/0", at=1_640 * S, addr=B)
    scenario.removed("replaced", "switch/b/0", B, at=1_700 * S)
    scenario.registered(seat="switch/b/0", at=1_700 * S, addr=A)
    changed = (removed_item("away"), item("new", 4, 4), item("sized", 8, 8), item("brief", 4, 4))
    scenario.queues(*changed, group="topics/t", at=1_700 * S)
    scenario.queues(removed_item("brief"), item("kept", 4, 4), group="topics/t", at=1_710 * S)
    # One gap of a hundred is late, and one is longer than all buckets.
    scenario.heartbeat_gaps({66: 98, 72: 1}, "beats/b/0", to_ms=1_500 * S, max_ms=50 * S)
    scenario.heartbeat_gaps({127: 1}, "beats/b/0", to_ms=1_999 * S, max_ms=9_000 * S)
    scenario.heartbeat_gaps({127: 50}, "beats/b/0", to_ms=2_000 * S, max_ms=9_000 * S)
    return scenario


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> History:
    history = make_scenario().history(spark)
    history.changes.cache()
    return history


def of(cluster: str, frame: DataFrame) -> Row:
    (row,) = frame.where(frame.cluster == cluster).collect()
    return row


def test_failures_are_counted_with_causes_and_mean_times(history: History) -> None:
    rows = {row.cluster: row for row in failures.by_cluster(history, WINDOW).collect()}
    back, down = rows["back"], rows["down"]
    assert (back.unplanned, back.planned, back.unfinished) == (3, 1, 0)
    assert back.causes == {"expired": 3, "unregistered": 1}
    assert back.mttr_ms == (10 + 59 + 50) * S / 3
    assert back.mtbf_ms == pytest.approx((1_000 - 10 - 59 - 60 - 50) * S / 3)
    assert (down.unplanned, down.unfinished, down.mttr_ms) == (1, 1, None)
    assert rows["topics"].causes == {}


def test_flaps_are_short_downs_and_episodes_are_series_of_downs(history: History) -> None:
    row = of("back", failures.flaps_by_seat(history, WINDOW))
    assert row.flaps == 3
    assert [tuple(episode) for episode in row.episodes] == [(1_000 * S, 1_200 * S, 3)]


def test_exposure_is_measured_from_the_last_sign_of_life(history: History) -> None:
    rows = {row.cluster: row for row in exposure.by_group(history, WINDOW).collect()}
    assert (rows["down"].detection_ms, rows["down"].exposed_ms) == (10 * S, 10 * S)
    assert rows["down"].queue_seconds == 10 * 8
    assert (rows["switch"].number, rows["switch"].detection_ms) == (1, 120 * S)
    assert "back" not in rows


def test_a_failover_is_a_new_address_at_id_0(history: History) -> None:
    row = of("switch", failovers.by_group(history, WINDOW))
    assert (row.failovers, row.planned, row.gap_ms, row.longest_gap_ms, row.headless_ms) == (
        2,
        1,
        40 * S,
        40 * S,
        40 * S,
    )


def test_created_removed_short_lived_and_resized_topics_are_counted(history: History) -> None:
    row = of("topics", churn.by_cluster(history, WINDOW))
    assert (row.topics_before, row.topics_after, row.created, row.removed, row.passing, row.resized) == (
        3,
        3,
        1,
        1,
        1,
        1,
    )
    assert row.rate == pytest.approx(4 / 3)


def test_capacity_is_counted_with_its_distribution(history: History) -> None:
    row = of("even", capacity.at_times(history, [1_000 * S]))
    assert (row.write_capacity, row.read_capacity, row.groups) == (16, 16, 3)
    # Loads 0, 4, 12: mean 16/3, deviation sqrt(((16/3)² + (4/3)² + (20/3)²) / 3).
    assert (row.mean, row.peak) == (pytest.approx(16 / 3), pytest.approx(2.25))
    assert row.cv == pytest.approx((((16**2 + 4**2 + 20**2) / 9 / 3) ** 0.5) / (16 / 3))
    assert row.gini == pytest.approx(2 * (2 * 4 + 3 * 12) / (3 * 16) - 4 / 3)
    assert (row.top_topic, row.top_share) == ("one", 0.5)


def test_percentiles_of_gaps_are_computed_from_buckets(history: History) -> None:
    row = of("beats", heartbeat_gaps.by_cluster(history, WINDOW))
    assert (row.number, row.max_ms, row.late, row.late_share) == (100, 9_000 * S, 2, 0.02)
    assert row.p50_ms == pytest.approx(100 * 2 ** (66 / 8))
    assert row.p99_ms == pytest.approx(100 * 2 ** (72 / 8))
    assert row.p999_ms == 9_000 * S


def test_holes_and_unreadable_entries_are_counted(spark: SparkSession) -> None:
    scenario = Scenario()
    scenario.registered(seat="c/b/0", at=1_000 * S)
    scenario.hole(3)
    scenario.unreadable("json", at=1_995 * S)
    (row,) = integrity.by_era(scenario.history(spark), WINDOW, 7).collect()
    assert (row.missing, len(row.holes), row.unreadable, row.duplicates, row.ok) == (3, 1, {"json": 1}, 0, False)
    assert row.entries + row.missing == row.last_version - row.first_version + 1
    assert row.complete_until_ms == 7


def test_capacity_is_computed_for_every_midnight_of_a_window_of_400_days(history: History) -> None:
    midnights = capacity.midnights(Window(0, 400 * DAY_MS))
    rows = capacity.at_times(history, midnights).where("cluster = 'even'").orderBy("at_ms").collect()
    assert [row.at_ms for row in rows] == midnights[1:], "the cluster appears during the first day"
    assert {row.write_capacity for row in rows} == {16}
