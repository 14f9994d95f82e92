"""4 to 10 and 12 on hand-made cases, a cluster each (and a broker each where topics matter: they go by its name). The
window is 1,000 s to 2,000 s; expected values by hand.
"""

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from routebook_pipeline.history import History, Window
from routebook_pipeline.transforms import capacity, churn, exposure, failovers, failures, heartbeat_gaps, integrity
from tests.pipeline.transforms.stories import Story, gone, put

pytestmark = pytest.mark.slow

S = 1_000
WINDOW = Window(1_000 * S, 2_000 * S)
A, B = "127.0.0.1:1", "127.0.0.2:1"


def tell() -> Story:
    story = Story()
    story.up("down/d/0", 500 * S, A, put("t", 8, 8), put("r", 4, 4, perm=4))
    story.up("back/b/0", 500 * S, A)
    story.up("switch/b/0", 500 * S, A)
    story.up("switch/b/1", 500 * S, B)
    story.up("topics/t/0", 900 * S, A, put("kept"), put("away"), put("sized"))
    story.up("even/b0/0", 900 * S, A, put("one", 4, 4))
    story.up("even/b1/0", 900 * S, B, put("one", 4, 4), put("two", 8, 8))
    story.up("even/b2/1", 900 * S, B)
    # Four times down, three of them within ten minutes of the one before, two of those for less than a minute.
    for start, end in ((1_000, 1_010), (1_100, 1_159), (1_200, 1_260), (1_900, 1_950)):
        story.down("back/b/0", start * S, "unregistered" if start == 1_200 else "expired", last_heartbeat_ms=None)
        story.up("back/b/0", end * S, A)
    story.down("down/d/0", 1_500 * S, "connection-lost", lost_ms=1_490 * S, last_heartbeat_ms=1 * S)
    # The master is lost, its address comes back elsewhere; then an operator replaces it in one step.
    story.down("switch/b/0", 1_600 * S, last_heartbeat_ms=1_480 * S)
    story.up("switch/b/0", 1_640 * S, B)
    story.down("switch/b/0", 1_700 * S, "replaced", addr=B)
    story.up("switch/b/0", 1_700 * S, A)
    story.queues("topics/t", 1_700 * S, gone("away"), put("new"), put("sized", 8, 8), put("brief"))
    story.queues("topics/t", 1_710 * S, gone("brief"), put("kept"))
    # One of a hundred is late; a gap longer than all buckets.
    story.gaps("beats/b/0", 1_500 * S, {66: 98, 72: 1}, 50 * S)
    story.gaps("beats/b/0", 1_999 * S, {127: 1}, 9_000 * S)
    story.gaps("beats/b/0", 2_000 * S, {127: 50}, 9_000 * S)
    return story


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> History:
    history = tell().history(spark)
    history.changes.cache()
    return history


def of(cluster: str, frame: DataFrame) -> Row:
    (row,) = frame.where(frame.cluster == cluster).collect()
    return row


def test_failures_have_causes_and_lengths(history: History) -> None:
    rows = {row.cluster: row for row in failures.by_cluster(history, WINDOW).collect()}
    back, down = rows["back"], rows["down"]
    assert (back.unplanned, back.planned, back.unfinished) == (3, 1, 0)
    assert back.causes == {"expired": 3, "unregistered": 1}
    assert back.mttr_ms == (10 + 59 + 50) * S / 3
    assert back.mtbf_ms == pytest.approx((1_000 - 10 - 59 - 60 - 50) * S / 3)
    assert (down.unplanned, down.unfinished, down.mttr_ms) == (1, 1, None)
    assert rows["topics"].causes == {}


def test_flaps_are_short_and_episodes_are_many(history: History) -> None:
    row = of("back", failures.flaps_by_seat(history, WINDOW))
    assert row.flaps == 3
    assert [tuple(episode) for episode in row.episodes] == [(1_000 * S, 1_200 * S, 3)]


def test_exposure_is_measured_from_the_last_sign_of_life(history: History) -> None:
    rows = {row.cluster: row for row in exposure.by_group(history, WINDOW).collect()}
    assert (rows["down"].detection_ms, rows["down"].exposed_ms) == (10 * S, 10 * S)
    assert rows["down"].queue_seconds == 10 * 8
    assert (rows["switch"].number, rows["switch"].detection_ms) == (1, 120 * S)
    assert "back" not in rows


def test_a_failover_is_another_address_at_id_0(history: History) -> None:
    row = of("switch", failovers.by_group(history, WINDOW))
    assert (row.failovers, row.planned, row.gap_ms, row.longest_gap_ms, row.headless_ms) == (
        2,
        1,
        40 * S,
        40 * S,
        40 * S,
    )


def test_topics_come_go_pass_and_change(history: History) -> None:
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


def test_capacity_and_how_evenly_it_is_spread(history: History) -> None:
    row = of("even", capacity.by_cluster(history, [1_000 * S]))
    assert (row.write_capacity, row.read_capacity, row.groups) == (16, 16, 3)
    # Loads 0, 4, 12: mean 16/3, deviation sqrt(((16/3)² + (4/3)² + (20/3)²) / 3).
    assert (row.mean, row.peak) == (pytest.approx(16 / 3), pytest.approx(2.25))
    assert row.cv == pytest.approx((((16**2 + 4**2 + 20**2) / 9 / 3) ** 0.5) / (16 / 3))
    assert row.gini == pytest.approx(2 * (2 * 4 + 3 * 12) / (3 * 16) - 4 / 3)
    assert (row.top_topic, row.top_share) == ("one", 0.5)


def test_gaps_are_ranked_over_their_buckets(history: History) -> None:
    row = of("beats", heartbeat_gaps.by_cluster(history, WINDOW))
    assert (row.number, row.max_ms, row.late, row.late_share) == (100, 9_000 * S, 2, 0.02)
    assert row.p50_ms == pytest.approx(100 * 2 ** (66 / 8))
    assert row.p99_ms == pytest.approx(100 * 2 ** (72 / 8))
    assert row.p999_ms == 9_000 * S


def test_a_hole_and_what_is_unreadable_are_told(spark: SparkSession) -> None:
    story = Story()
    story.up("c/b/0", 1_000 * S)
    story.hole(3)
    story.tell(99, 1_995 * S, cause="json")
    (row,) = integrity.by_era(story.history(spark), WINDOW, 7).collect()
    assert (row.missing, len(row.holes), row.unreadable, row.duplicates, row.ok) == (3, 1, {"json": 1}, 0, False)
    assert row.entries + row.missing == row.last_version - row.first_version + 1
    assert row.complete_until_ms == 7
