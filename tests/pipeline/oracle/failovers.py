"""10 `failovers`: changes of the master's address, and time without a master."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.availability import groups_of
from tests.pipeline.oracle.history_rows import Group, HistoryRows, Row, before, within
from tests.pipeline.oracle.states import DOWN, UP, Interval, all_intervals, evidence, instants, state_at


@dataclass(frozen=True)
class Failover:
    group: Group
    row: Row
    from_address: str
    gap_ms: int


def failovers(history: HistoryRows, window: Window) -> list[Failover]:
    """Every entry that names the holder of seat 0 counts, since a baseline can be the first to name a new one."""
    rows = before(history, window.end_ms)
    found = []
    spans = all_intervals(rows)
    for seat, of_seat in sorted(evidence(rows).items()):
        if seat[2] != 0:
            continue
        registered = [evidence.row for evidence in of_seat if evidence.state == UP]
        for former, row in pairwise(registered):
            if former["addr"] != row["addr"] and within(row, window):
                found.append(Failover(seat[:2], row, former["addr"], _gap(spans[seat], row)))
    return found


def _gap(of_seat: Sequence[Interval], row: Row) -> int:
    """The time since the last UP before this entry ended; 0 if it had not ended."""
    earlier = [interval for interval in of_seat if interval.row["ord"] < row["ord"]]
    if earlier[-1].state == UP:
        return 0
    former = [interval for interval in earlier if interval.state == UP][-1]
    assert former.end is not None
    return int(row["ms"]) - former.end


def each(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    return [
        {
            "cluster": found.group[0],
            "broker": found.group[1],
            "version": found.row["version"],
            "ms": found.row["ms"],
            "from_address": found.from_address,
            "to_address": found.row["addr"],
            "gap_ms": found.gap_ms,
            "planned": found.gap_ms == 0,
        }
        for found in failovers(history, window)
    ]


def headless(seats: dict[int, list[Interval]], window: Window, thresholds: Thresholds) -> list[tuple[int, int]]:
    """The spans in which seat 0 is DOWN and another seat is UP, joined where they touch."""
    spans: list[tuple[int, int]] = []
    for start, end in instants(seats.values(), window, thresholds):
        master = state_at(seats.get(0, []), start, window, thresholds)
        others = (state_at(seats[other], start, window, thresholds) for other in seats if other != 0)
        if DOWN in master and any(UP in states for states in others):
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
    return spans


def by_group(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    found = failovers(history, window)
    answer = []
    for group, seats in groups_of(all_intervals(before(history, window.end_ms))).items():
        own = [failover for failover in found if failover.group == group]
        masterless = sum(end - start for start, end in headless(seats, window, thresholds))
        if own or masterless:
            answer.append(
                {
                    "cluster": group[0],
                    "broker": group[1],
                    "failovers": len(own),
                    "planned": sum(failover.gap_ms == 0 for failover in own),
                    "gap_ms": sum(failover.gap_ms for failover in own),
                    "longest_gap_ms": max((failover.gap_ms for failover in own), default=0),
                    "headless_ms": masterless,
                }
            )
    return answer
