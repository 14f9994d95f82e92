"""The rows of one namespace's history as dicts, and helpers to select them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from routebook_pipeline.history import Instant, Window
from routebook_pipeline.kinds import Kind

Row = Mapping[str, Any]
Seat = tuple[str, str, int]
Group = tuple[str, str]

UP_CODES = frozenset({Kind.BROKER_REGISTERED, Kind.BROKER_CHANGED, Kind.BASELINE_SEAT})
"""Row 0 of these entries says that an address holds a seat."""
LOST_CODES = frozenset({Kind.HOLE, Kind.FORK})


class HistoryRows(Protocol):
    """The rows of one namespace's history: a scenario, a random history, or rows that were read from a lake."""

    @property
    def changes(self) -> Sequence[Row]: ...

    @property
    def pulses(self) -> Sequence[Row]: ...


@dataclass(frozen=True)
class ReadRows:
    """Rows that were read from a lake or computed by Spark."""

    changes: Sequence[Row]
    pulses: Sequence[Row] = ()


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["ord"], row["row"]))


def before(history: HistoryRows, end_ms: int) -> list[Row]:
    """The rows that the answer for a window with this end may use."""
    return in_order([row for row in history.changes if row["ms"] < end_ms])


def until(history: HistoryRows, instant: Instant) -> list[Row]:
    if instant.ord is not None:
        return in_order([row for row in history.changes if row["ord"] <= instant.ord])
    assert instant.ms is not None
    return in_order([row for row in history.changes if row["ms"] <= instant.ms])


def within(row: Row, window: Window) -> bool:
    return bool(window.start_ms <= row["ms"] < window.end_ms)


def is_entry(row: Row) -> bool:
    """The row is the entry itself and not one of its queue items."""
    return bool(row["row"] == 0)


def is_item(row: Row) -> bool:
    return row["topic"] is not None


def seat_of(row: Row) -> Seat:
    return row["cluster"], row["broker"], row["broker_id"]


def group_of(row: Row) -> Group:
    return row["cluster"], row["broker"]


@dataclass(frozen=True)
class Baseline:
    begin_ord: int
    end: Row


def baselines(rows: Sequence[Row]) -> list[Baseline]:
    """The complete baselines: begun and ended with nothing lost in between. A new begin abandons the one before."""
    found: list[Baseline] = []
    begin_ord: int | None = None
    for row in rows:
        if not is_entry(row):
            continue
        if row["code"] == Kind.BASELINE_BEGIN:
            begin_ord = row["ord"]
        elif row["code"] in LOST_CODES:
            begin_ord = None
        elif row["code"] == Kind.BASELINE_END and begin_ord is not None:
            found.append(Baseline(begin_ord, row))
            begin_ord = None
    return found


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def nearest_rank(length: int, per_mille: int) -> int:
    """`ceil(q * n)` without floating-point errors; ranks count from 1."""
    return -(-length * per_mille // 1000)
