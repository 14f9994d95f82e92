"""Points in time and durations as users write them."""

import pytest

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.times import When, human_duration, iso, parse_duration, parse_when

NOON = 1_777_636_800_000


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-05-01T12:00Z", When(ms=NOON)),
        ("2026-05-01T14:00:00.123+02:00", When(ms=NOON + 123)),
        ("20260501T12Z", When(ms=NOON)),
        ("now", When(ago_ms=0)),
        ("-2h", When(ago_ms=7_200_000)),
        ("-1.5d", When(ago_ms=129_600_000)),
    ],
)
def test_a_point_in_time_is_absolute_with_a_zone_or_relative(text: str, when: When) -> None:
    assert parse_when(text) == when


def test_a_relative_time_counts_from_the_given_clock() -> None:
    assert parse_when("-2h").on_clock(NOON) == NOON - 7_200_000
    assert parse_when("2026-05-01T12:00Z").on_clock(5) == NOON


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("2026-05-01", "write 2026-05-01T00:00Z"),
        ("2026-05-01T12:00", "write 2026-05-01T12:00Z"),
        ("yesterday", "-2h"),
        ("2026-13-01T00:00Z", "not a point in time"),
        ("-2", "not a duration"),
        ("-2y", "ms, s, m, h, d, w"),
        ("-999999w", "is too long"),
    ],
)
def test_an_ambiguous_or_invalid_time_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(WrongUsageError, match=advice):
        parse_when(text)


def test_a_duration_has_a_unit() -> None:
    assert [parse_duration(text) for text in ("30s", "250ms", "1.5m")] == [30_000, 250, 90_000]


def test_times_are_printed_in_utc_and_durations_in_two_units() -> None:
    assert iso(NOON + 5) == "2026-05-01T12:00:00.005Z"
    assert [human_duration(ms) for ms in (0, 999, 1_500, 61_000, 3_600_000, 90_000_000)] == [
        "0 ms",
        "999 ms",
        "1.5 s",
        "1 m 1 s",
        "1 h",
        "1 d 1 h",
    ]
