"""The state of each seat over time, as intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from routebook_pipeline.history import Thresholds, Window
from routebook_pipeline.kinds import UNPLANNED_CAUSES, Kind
from tests.pipeline.oracle.history_rows import LOST_CODES, UP_CODES, Row, Seat, baselines, is_entry, seat_of

UP, DOWN, UNKNOWN, GONE = "UP", "DOWN", "UNKNOWN", "GONE"


@dataclass(frozen=True)
class Evidence:
    state: str
    ms: int
    row: Row
    """Where the state comes from: the seat's own entry, a hole or fork, or the end of a baseline."""


@dataclass(frozen=True)
class Interval:
    state: str
    start: int
    end: int | None
    then: str | None
    row: Row
    """The entry that began it."""

    @property
    def is_unplanned(self) -> bool:
        return self.state == DOWN and self.row["cause"] in UNPLANNED_CAUSES

    @property
    def is_absence(self) -> bool:
        """A DOWN, except a planned one that another address ended in the same millisecond."""
        is_hand_over = not self.is_unplanned and self.then == UP and self.end == self.start
        return self.state == DOWN and not is_hand_over


def evidence(rows: Sequence[Row]) -> dict[Seat, list[Evidence]]:
    """The evidence of every seat, in order.

    A DOWN seat stays DOWN if a baseline does not name it. A baseline lists the route table, which has not contained the
    seat since its removal, so this is nothing new. Otherwise no outage could last longer than until the next baseline,
    and `retire_after` would have no effect.
    """
    complete = {baseline.end["ord"]: baseline.begin_ord for baseline in baselines(rows)}
    found: dict[Seat, list[Evidence]] = {}
    ms_before: int | None = None
    for row in rows:
        if not is_entry(row):
            continue
        if row["code"] in UP_CODES:
            found.setdefault(seat_of(row), []).append(Evidence(UP, row["ms"], row))
        elif row["code"] == Kind.BROKER_REMOVED:
            found.setdefault(seat_of(row), []).append(Evidence(DOWN, row["ms"], row))
        elif row["code"] in LOST_CODES:
            for known in found.values():
                assert ms_before is not None
                known.append(Evidence(UNKNOWN, ms_before, row))
        elif row["ord"] in complete:
            for known in found.values():
                if known[-1].row["ord"] < complete[row["ord"]] and known[-1].state in (UP, UNKNOWN):
                    known.append(Evidence(GONE, row["ms"], row))
        ms_before = row["ms"]
    return found


def intervals(of_seat: Sequence[Evidence]) -> list[Interval]:
    changed = [
        now
        for before, now in zip([None, *of_seat], of_seat, strict=False)
        if before is None or before.state != now.state
    ]
    return [
        Interval(now.state, now.ms, then.ms if then else None, then.state if then else None, now.row)
        for now, then in zip(changed, [*changed[1:], None], strict=True)
    ]


def all_intervals(rows: Sequence[Row]) -> dict[Seat, list[Interval]]:
    return {seat: intervals(of_seat) for seat, of_seat in evidence(rows).items()}


def counted(interval: Interval, window: Window, thresholds: Thresholds) -> tuple[int, int]:
    """The part of the interval that counts, from and to; empty if no part of it counts."""
    end = window.end_ms if interval.end is None else min(interval.end, window.end_ms)
    if interval.state == DOWN:
        end = min(end, interval.start + thresholds.retire_after_ms)
    start = max(interval.start, window.start_ms)
    return start, max(start, end)


def length(of_seat: Iterable[Interval], window: Window, thresholds: Thresholds) -> int:
    return sum(end - start for start, end in (counted(interval, window, thresholds) for interval in of_seat))


def state_at(of_seat: Iterable[Interval], ms: int, window: Window, thresholds: Thresholds) -> set[str]:
    found = set()
    for interval in of_seat:
        start, end = counted(interval, window, thresholds)
        if start <= ms < end:
            found.add(interval.state)
    return found


def instants(seats: Iterable[Sequence[Interval]], window: Window, thresholds: Thresholds) -> list[tuple[int, int]]:
    """Cuts the window wherever the state of any of the seats changes."""
    cuts = {window.start_ms, window.end_ms}
    for of_seat in seats:
        for interval in of_seat:
            cuts.update(counted(interval, window, thresholds))
    points = sorted(cut for cut in cuts if window.start_ms <= cut <= window.end_ms)
    return list(pairwise(points))


def last_state(of_seat: Sequence[Evidence]) -> str | None:
    return of_seat[-1].state if of_seat else None
