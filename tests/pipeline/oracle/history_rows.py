"""What was history: the rows of one namespace as dicts, in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from routebook_pipeline.history import Instant, Window
from routebook_pipeline.kinds import Kind

Row = Mapping[str, Any]
Seat = tuple[str, str, int]
Group = tuple[str, str]

UP_CODES = frozenset({Kind.BROKER_REGISTERED, Kind.BROKER_CHANGED, Kind.BASELINE_SEAT})
"""Their row 0 says that an address holds a seat."""
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
    """What an answer to a window that ends there may know."""
    return in_order([row for row in history.changes if row["ms"] < end_ms])


def until(history: HistoryRows, instant: Instant) -> list[Row]:
    if instant.ord is not None:
        return in_order([row for row in history.changes if row["ord"] <= instant.ord])
    assert instant.ms is not None
    return in_order([row for row in history.changes if row["ms"] <= instant.ms])


def within(row: Row, window: Window) -> bool:
    return bool(window.start_ms <= row["ms"] < window.end_ms)


def is_entry(row: Row) -> bool:
    """The entry itself, not one of its queue items."""
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
    """Those that are whole: begun, ended, and nothing lost in between. One begun anew was given up before."""
    found: list[Baseline] = []
    begun: int | None = None
    for row in rows:
        if not is_entry(row):
            continue
        if row["code"] == Kind.BASELINE_BEGIN:
            begun = row["ord"]
        elif row["code"] in LOST_CODES:
            begun = None
        elif row["code"] == Kind.BASELINE_END and begun is not None:
            found.append(Baseline(begun, row))
            begun = None
    return found


def ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def nearest_rank(length: int, per_mille: int) -> int:
    """`ceil(q * n)` without the errors of floating point; ranks count from 1."""
    return -(-length * per_mille // 1000)
