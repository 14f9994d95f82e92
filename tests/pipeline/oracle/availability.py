"""3 `availability`: how long each seat, group and cluster was up."""

from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.history_rows import Group, HistoryRows, Row, Seat, before, is_entry, ratio
from tests.pipeline.oracle.states import (
    DOWN,
    UNKNOWN,
    UP,
    Interval,
    all_intervals,
    counted,
    evidence,
    instants,
    length,
    state_at,
)


def _times(of_seat: Sequence[Interval], window: Window, thresholds: Thresholds) -> dict[str, Any]:
    def total(state: str, unplanned: bool = False) -> int:
        return length(
            (found for found in of_seat if found.state == state and found.is_unplanned == unplanned), window, thresholds
        )

    up, unplanned, planned = total(UP), total(DOWN, unplanned=True), total(DOWN)
    return {
        "up_ms": up,
        "unplanned_ms": unplanned,
        "planned_ms": planned,
        "unknown_ms": total(UNKNOWN),
        "availability": ratio(up, up + unplanned),
        "availability_all": ratio(up, up + unplanned + planned),
    }


def by_seat(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    rows = before(history, window.end_ms)
    found = all_intervals(rows)
    return [
        {
            "cluster": seat[0],
            "broker": seat[1],
            "broker_id": seat[2],
            "since_ms": max(window.start_ms, of_seat[0].ms),
            **_times(found[seat], window, thresholds),
        }
        for seat, of_seat in sorted(evidence(rows).items())
    ]


def groups_of(found: dict[Seat, list[Interval]]) -> dict[Group, dict[int, list[Interval]]]:
    groups: dict[Group, dict[int, list[Interval]]] = {}
    for (cluster, broker, broker_id), of_seat in sorted(found.items()):
        groups.setdefault((cluster, broker), {})[broker_id] = of_seat
    return groups


def by_group(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    rows = []
    for (cluster, broker), seats in groups_of(all_intervals(before(history, window.end_ms))).items():
        times = _times(seats.get(0, []), window, thresholds)
        readable = _readable(list(seats.values()), window, thresholds)
        rows.append(
            {
                "cluster": cluster,
                "broker": broker,
                **{name: value if 0 in seats else None for name, value in times.items()},
                "readable_ms": readable[UP],
                "unreadable_ms": readable[DOWN],
                "readable_unknown_ms": readable[UNKNOWN],
                "readable": ratio(readable[UP], readable[UP] + readable[DOWN]),
            }
        )
    return rows


def _readable(seats: Sequence[Sequence[Interval]], window: Window, thresholds: Thresholds) -> dict[str, int]:
    total = dict.fromkeys((UP, UNKNOWN, DOWN), 0)
    for start, end in instants(seats, window, thresholds):
        states = set().union(*(state_at(of_seat, start, window, thresholds) for of_seat in seats))
        for state in (UP, UNKNOWN, DOWN):
            if state in states:
                total[state] += end - start
                break
    return total


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    paused = paused_ms(before(history, window.end_ms), window)
    clusters: dict[str, list[dict[str, Any]]] = {}
    for group in by_group(history, window, thresholds):
        clusters.setdefault(group["cluster"], []).append(group)
    rows = []
    for cluster, groups in sorted(clusters.items()):
        writable = [group for group in groups if group["up_ms"] is not None]
        total = {
            name: sum(group[name] for group in writable)
            for name in ("up_ms", "unplanned_ms", "planned_ms", "unknown_ms")
        }
        up, unplanned, planned = total["up_ms"], total["unplanned_ms"], total["planned_ms"]
        availability = ratio(up, up + unplanned)
        known = [(group["availability"], group["broker"]) for group in writable if group["availability"] is not None]
        worst = min(known, default=(None, None))
        rows.append(
            {
                "cluster": cluster,
                "groups": len(writable),
                **total,
                "availability": availability,
                "availability_all": ratio(up, up + unplanned + planned),
                "worst_group": worst[1],
                "worst_availability": worst[0],
                "objective": thresholds.objective,
                "budget_ms": (1 - thresholds.objective) * (up + unplanned),
                "spent_ms": unplanned,
                "met": None if availability is None else availability >= thresholds.objective,
                "paused_ms": paused,
            }
        )
    return rows


def paused_ms(rows: Sequence[Row], window: Window) -> int:
    """Overlaps count once."""
    total, reached = 0, window.start_ms
    spans = sorted(
        (row["from_ms"], row["to_ms"]) for row in rows if is_entry(row) and row["code"] == Kind.EXPIRY_PAUSED
    )
    for from_ms, to_ms in spans:
        start, end = max(from_ms, reached), min(to_ms, window.end_ms)
        if end > start:
            total, reached = total + end - start, end
    return total


__all__ = ["by_cluster", "by_group", "by_seat", "counted", "groups_of", "paused_ms"]
