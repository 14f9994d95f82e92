"""What every question works on: the rows of a history, a window or an instant, and the thresholds."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # Help texts list the thresholds, and importing Spark takes a second.
    from pyspark.sql import DataFrame

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

ERA_SHIFT: Final = 1 << 48
"""`ord = era * ERA_SHIFT + version` orders all entries of a namespace, across forks."""


@dataclass(frozen=True)
class History:
    """The rows of one namespace that a question needs. No question reads anything else.

    `changes` holds all entries, or the rows of a snapshot and all entries after it. Both give the same answers.
    """

    changes: "DataFrame"
    """Columns: `schemas.CHANGES`."""
    pulses: "DataFrame"
    """Columns: `schemas.PULSES`."""
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What one question has derived from the history and another one can use."""


@dataclass(frozen=True)
class Window:
    """The time `[start_ms, end_ms)`, in UTC.

    Entries at or after the end are ignored, even if they end something that began inside the window.
    """

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


DAY_NUMBER: Final = "day_number"
"""Column of answers over `Days`: the days between 1970-01-01 and the day of the row."""


@dataclass(frozen=True)
class Days(Window):
    """Every UTC day between start and end, which are midnights, as a window of its own. The last one may end early.

    A question over them is computed in one pass, and its rows have the column `DAY_NUMBER`. Every row must be ordered
    in the same way by time and by `ord`, and no loss may lie in these days: only then does the history until the end of
    a day consist of the same rows whether later days are read too or not.
    """

    @property
    def numbers(self) -> range:
        return range(self.start_ms // DAY_MS, -(-self.end_ms // DAY_MS))

    @property
    def windows(self) -> "list[Window]":
        starts = [number * DAY_MS for number in self.numbers]
        return [Window(start, min(start + DAY_MS, self.end_ms)) for start in starts]


@dataclass(frozen=True)
class Instant:
    """A point in the history: all entries up to `ms` (inclusive), or up to the entry `ord` (inclusive).

    Exactly one of the two is set.
    """

    ms: int | None = None
    ord: int | None = None


@dataclass(frozen=True)
class Thresholds:
    """The limits that an operator can set (`--threshold`). docs/pipeline.md explains each of them."""

    objective: float = 0.9995
    retire_after_ms: int = 7 * DAY_MS
    """A DOWN interval counts for at most this long, so that a retired broker stops lowering the availability."""
    flap_ms: int = MINUTE_MS
    episode_gap_ms: int = 10 * MINUTE_MS
    episode_minimum: int = 3
    expected_period_ms: int = 30 * SECOND_MS
    late_factor: float = 1.5
    poll_ms: int = 30 * SECOND_MS
    """How often a client looks up its routes."""
    mass_loss_share: float = 0.2
    mass_loss_minimum: int = 3
    mass_loss_ms: int = MINUTE_MS
    headless_ms: int = MINUTE_MS
    two_masters_ms: int = MINUTE_MS
    slow_detection_ms: int = 10 * SECOND_MS
    late_share: float = 0.01
    late_minimum: int = 100
    churn_spread: float = 6.0
    churn_minimum: int = 20
    churn_times_median: float = 10.0
    churn_hours_before: int = 7 * 24
    churn_hours_minimum: int = 24
    """With fewer hours of history before it, an hour is not judged."""
    skew_peak: float = 2.0
    skew_groups: int = 4
    read_only_ms: int = 10 * MINUTE_MS


DEFAULTS: Final = Thresholds()
