"""Formatted figures, the ticks of charts, and bands that would overlap."""

import pytest

from routebook_pipeline.history import DAY_MS, HOUR_MS
from routebook_pipeline.report import formats
from routebook_pipeline.report.charts import Scale, both_ways, duration_ticks, joined, time_ticks, value_ticks
from routebook_pipeline.report.data import UNPLANNED, UP, Band, worst_seats
from routebook_pipeline.report.markup import shortened
from routebook_pipeline.report.sections.heartbeats import upper_edge_ms


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (None, "—"),
        (1.0, "100 %"),
        (0.99999999, "99.9999 %"),
        (0.9995, "99.9500 %"),
        (0.99949999, "99.9499 %"),
        (0, "0.0000 %"),
    ],
)
def test_availability_is_never_rounded_up(ratio: float | None, shown: str) -> None:
    assert formats.availability(ratio) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "—"),
        (0, "0 s"),
        (350, "350 ms"),
        (30_000, "30 s"),
        (30_400, "30.4 s"),
        (60_000, "1 min"),
        (245_999, "4 min 05 s"),
        (3_600_000, "1 h"),
        (47 * HOUR_MS + 59 * 60_000, "47 h 59 min"),
        (2 * DAY_MS, "2 d"),
        (9 * DAY_MS + 4 * HOUR_MS, "9 d 04 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: int | None, shown: str) -> None:
    assert formats.duration(ms) == shown


def test_small_shares_are_not_rounded_to_zero() -> None:
    assert [formats.share(ratio) for ratio in (None, 0, 1e-9, 0.0027, 0.05, 1)] == [
        "—",
        "0 %",
        "< 0.01 %",
        "0.27 %",
        "5 %",
        "100 %",
    ]


def test_ticks_are_round_and_reach_the_highest_value() -> None:
    assert value_ticks(0) == [0, 1]
    assert value_ticks(3) == [0, 1, 2, 3]
    assert value_ticks(98) == [0, 25, 50, 75, 100]
    assert duration_ticks(16 * 60_000) == [0, 300_000, 600_000, 900_000, 1_200_000]
    assert both_ways(-18, 26) == [-20, -10, 0, 10, 20, 30]
    assert both_ways(0, 3) == [0, 1, 2, 3]


def test_time_ticks_are_at_round_times_inside_the_window() -> None:
    start = 1_793_491_200_000
    assert time_ticks(start, start + 6 * HOUR_MS) == [
        (start + n * HOUR_MS, "1 Nov" if n == 0 else f"{n:02d}:00") for n in range(7)
    ]
    assert [label for _, label in time_ticks(start, start + 14 * DAY_MS)][:3] == ["1 Nov", "3 Nov", "5 Nov"]
    assert time_ticks(start, start) == []
    assert time_ticks(start, start + 10**15) == []


def test_bands_that_would_overlap_are_joined_and_up_comes_first() -> None:
    def band(state: str, start: int, end: int) -> Band:
        return Band("c", "b", 0, state, start, end)

    across = Scale(0, 1000, 0, 100)
    bands = [
        band(UP, 0, 500),
        band(UNPLANNED, 500, 501),
        band(UP, 501, 502),
        band(UNPLANNED, 502, 503),
        band(UP, 503, 1000),
    ]
    groups = joined(bands, across)
    assert [(group[0].state, len(group)) for group in groups] == [(UP, 3), (UNPLANNED, 2)]
    far = [band(UNPLANNED, 0, 1), band(UNPLANNED, 900, 901)]
    assert [len(group) for group in joined(far, across)] == [1, 1]


def test_the_worst_seats_have_the_most_unplanned_time_down() -> None:
    def row(broker: str, unplanned: int, planned: int) -> dict[str, object]:
        return {"cluster": "c", "broker": broker, "broker_id": 0, "unknown_ms": 0} | {
            "unplanned_ms": unplanned,
            "planned_ms": planned,
        }

    rows = [row("a", 0, 90), row("d", 1, 0), row("b", 0, 90), row("c", 5, 0)]
    assert [seat["broker"] for seat in worst_seats(rows, 3)] == ["c", "d", "a"]


def test_long_names_are_cut_in_the_middle() -> None:
    assert shortened("a-very-long-cluster/broker-17/0", 13) == "a-very…r-17/0"


def test_the_buckets_have_the_edges_that_the_service_uses() -> None:
    assert upper_edge_ms(0) == 100
    assert upper_edge_ms(8) == 200
