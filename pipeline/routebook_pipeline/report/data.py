"""What a report is made of: the answers as plain rows, and what they rest on. Who asks the questions fills it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from routebook_pipeline.history import DEFAULTS, Thresholds, Window

Row = Mapping[str, Any]
"""A row of an answer, by the columns of `shapes.py`; a struct inside is a mapping, too."""
Rows = Sequence[Row]

UP: Final = "up"
UNPLANNED: Final = "unplanned"
PLANNED: Final = "planned"
UNKNOWN: Final = "unknown"
STATES: Final = (UP, UNPLANNED, PLANNED, UNKNOWN)

BANDS: Final = 30
"""So many brokers have their ups and downs drawn."""


@dataclass(frozen=True)
class Band:
    """A stretch of one state of a seat. What is between two bands of a seat counts for nothing."""

    cluster: str
    broker: str
    broker_id: int
    state: str
    """One of `STATES`."""
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class ReportData:
    """Row lists are as the questions give them, in any order: the page chooses the worst and bounds itself."""

    namespace: str
    window: Window
    integrity: Rows = ()
    complete_until_ms: int | None = None
    asked_until_ms: int | None = None
    """The end that was asked for, when the history does not reach that far and the window was cut."""
    notes: Sequence[str] = ()
    """What the reader must know besides: a snapshot built on the way, a day made again."""
    availability_by_cluster: Rows = ()
    availability_by_group: Rows = ()
    availability_by_seat: Rows = ()
    bands: Sequence[Band] = ()
    """Of the seats of `worst_seats`, cut to the window."""
    failures_by_cluster: Rows = ()
    failures_by_seat: Rows = ()
    flaps: Rows = ()
    heartbeat_gaps_by_cluster: Rows = ()
    heartbeat_gaps_by_seat: Rows = ()
    gap_buckets: Mapping[int, int] = field(default_factory=dict)
    """Heartbeat gaps of the whole namespace: bucket of the pulse -> number. Empty: no picture, the tables stay."""
    exposure_by_cluster: Rows = ()
    exposure_by_group: Rows = ()
    capacity: Rows = ()
    """At every midnight of the window, and at its ends where they are none."""
    churn: Rows = ()
    failovers: Rows = ()
    failovers_by_group: Rows = ()
    anomalies: Rows = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    """Field of this class -> number of rows there are, where only the worst were brought along."""
    thresholds: Thresholds = DEFAULTS
    made_ms: int | None = None
    made_by: str = ""
    """Version of the program, and how it was called."""

    @property
    def is_partial(self) -> bool:
        return self.asked_until_ms is not None and self.asked_until_ms > self.window.end_ms

    def total(self, name: str) -> int:
        return max(len(getattr(self, name)), self.totals.get(name, 0))


def worst_seats(availability_by_seat: Rows, limit: int = BANDS) -> list[Row]:
    """Those whose bands are worth drawing: most unplanned time first, then planned, then unknown, then by name."""
    return sorted(
        availability_by_seat,
        key=lambda row: (
            -(row["unplanned_ms"] or 0),
            -(row["planned_ms"] or 0),
            -(row["unknown_ms"] or 0),
            *seat_of(row),
        ),
    )[:limit]


def seat_of(row: Row | Band) -> tuple[str, str, int]:
    if isinstance(row, Band):
        return row.cluster, row.broker, row.broker_id
    return row["cluster"] or "", row["broker"] or "", row["broker_id"] or 0
