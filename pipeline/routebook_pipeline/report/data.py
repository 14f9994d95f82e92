"""The input of a report: the answers as plain rows, and what they rest on. `answers.computation` collects it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from routebook_pipeline.history import DEFAULTS, Thresholds, Window

Row = Mapping[str, Any]
"""A row of an answer, with the columns of `schemas`. A struct inside a row is a mapping, too."""
Rows = Sequence[Row]

UP: Final = "up"
UNPLANNED: Final = "unplanned"
PLANNED: Final = "planned"
UNKNOWN: Final = "unknown"
STATES: Final = (UP, UNPLANNED, PLANNED, UNKNOWN)

BANDS: Final = 30
"""The number of brokers whose ups and downs are drawn."""


@dataclass(frozen=True)
class Band:
    """A stretch of time during which a seat was in one state. Time between two bands of a seat does not count."""

    cluster: str
    broker: str
    broker_id: int
    state: str
    """One of `STATES`."""
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class ReportData:
    """Rows come in any order and number: the page sorts them and shows the worst."""

    namespace: str
    window: Window
    integrity: Rows = ()
    complete_until_ms: int | None = None
    asked_until_ms: int | None = None
    """The end that was asked for; later than the window's end if the history does not reach that far."""
    notes: Sequence[str] = ()
    """Other things that the reader must know, such as a store that did not answer."""
    availability_by_cluster: Rows = ()
    availability_by_group: Rows = ()
    availability_by_seat: Rows = ()
    bands: Sequence[Band] = ()
    """The bands of the seats that `worst_seats` selects, cut to the window."""
    failures_by_cluster: Rows = ()
    failures_by_seat: Rows = ()
    flaps: Rows = ()
    heartbeat_gaps_by_cluster: Rows = ()
    heartbeat_gaps_by_seat: Rows = ()
    gap_buckets: Mapping[int, int] = field(default_factory=dict)
    """Heartbeat gaps of the whole namespace: bucket -> number. If empty, the tables are shown without a chart."""
    exposure_by_cluster: Rows = ()
    exposure_by_group: Rows = ()
    capacity: Rows = ()
    """At every midnight of the window, and at its end."""
    churn: Rows = ()
    failovers: Rows = ()
    failovers_by_group: Rows = ()
    anomalies: Rows = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    """Field of this class -> total number of rows, for fields that only contain the worst rows."""
    thresholds: Thresholds = DEFAULTS
    made_ms: int | None = None
    made_by: str = ""
    """The program that made the page."""

    @property
    def is_partial(self) -> bool:
        return self.asked_until_ms is not None and self.asked_until_ms > self.window.end_ms

    def total(self, name: str) -> int:
        return max(len(getattr(self, name)), self.totals.get(name, 0))


def worst_seats(availability_by_seat: Rows, limit: int = BANDS) -> list[Row]:
    """The seats to draw: most unplanned time down first, then planned, then unknown, then by name."""
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
