"""What a question is asked of, and over which time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Help texts list the thresholds, and shall not wait for Spark's modules.
    from pyspark.sql import DataFrame

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

ERA_SHIFT: Final = 1 << 48
"""`ord = era * ERA_SHIFT + version` orders all entries of a namespace, across forks."""


@dataclass(frozen=True)
class History:
    """The rows of one namespace that a question needs; nothing else is read.

    `changes` holds everything from the first entry on, or a snapshot's rows and everything behind the snapshot: a
    question cannot tell, and its answer is the same.
    """

    changes: "DataFrame"
    """As `schemas.CHANGES`."""
    pulses: "DataFrame"
    """As `schemas.PULSES`."""


@dataclass(frozen=True)
class Window:
    """`[start_ms, end_ms)`, in UTC. Entries at or after its end do not count, also for what began inside."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class Instant:
    """A point in the history: everything up to `ms` (inclusive), or up to the entry `ord` (inclusive). One of them is
    set.
    """

    ms: int | None = None
    ord: int | None = None


@dataclass(frozen=True)
class Thresholds:
    """What an operator may choose; the defaults are those of the documentation."""

    objective: float = 0.9995
    retire_after_ms: int = 7 * DAY_MS
    """A DOWN interval counts at most this long: a broker that was taken away does not hurt for ever."""
    flap_ms: int = MINUTE_MS
    episode_gap_ms: int = 10 * MINUTE_MS
    episode_minimum: int = 3
    expected_period_ms: int = 30 * SECOND_MS
    late_factor: float = 1.5
    poll_ms: int = 30 * SECOND_MS
    """How often a client asks for its routes."""
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
    skew_peak: float = 2.0
    skew_groups: int = 4
    read_only_ms: int = 10 * MINUTE_MS


DEFAULTS: Final = Thresholds()
