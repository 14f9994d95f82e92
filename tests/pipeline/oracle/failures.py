"""4 `failures` and 5 `flaps`: how often seats went down, why, for how long, and whether repeatedly."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.history_rows import HistoryRows, Seat, before, ratio
from tests.pipeline.oracle.states import UP, Interval, all_intervals, length


def _failures(seats: Sequence[Sequence[Interval]], window: Window, thresholds: Thresholds) -> dict[str, Any]:
    down = [
        found
        for of_seat in seats
        for found in of_seat
        if found.is_absence and window.start_ms <= found.start < window.end_ms
    ]
    unplanned = [found for found in down if found.is_unplanned]
    repairs = [found.end - found.start for found in unplanned if found.then == UP and found.end is not None]
    up = sum(length((found for found in of_seat if found.state == UP), window, thresholds) for of_seat in seats)
    return {
        "unplanned": len(unplanned),
        "planned": len(down) - len(unplanned),
        "unfinished": len(unplanned) - len(repairs),
        "causes": dict(Counter(found.row["cause"] for found in down)),
        "up_ms": up,
        "mtbf_ms": ratio(up, len(unplanned)),
        "mttr_ms": ratio(sum(repairs), len(repairs)),
    }


def by_seat(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    """Every seat with evidence before the end of the window has a row, even if it did not fail."""
    return [
        {"cluster": seat[0], "broker": seat[1], "broker_id": seat[2], **_failures([of_seat], window, thresholds)}
        for seat, of_seat in sorted(all_intervals(before(history, window.end_ms)).items())
    ]


def by_cluster(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    clusters: dict[str, list[list[Interval]]] = {}
    for seat, of_seat in sorted(all_intervals(before(history, window.end_ms)).items()):
        clusters.setdefault(seat[0], []).append(of_seat)
    return [
        {"cluster": cluster, "broker": None, "broker_id": None, **_failures(seats, window, thresholds)}
        for cluster, seats in clusters.items()
    ]


@dataclass(frozen=True)
class Episode:
    seat: Seat
    downs: Sequence[Interval]


def _downs(of_seat: Sequence[Interval], window: Window) -> list[Interval]:
    return [found for found in of_seat if found.is_absence and window.start_ms <= found.start < window.end_ms]


def _episodes(seat: Seat, downs: Sequence[Interval], thresholds: Thresholds) -> list[Episode]:
    runs: list[list[Interval]] = []
    for down in downs:
        if runs and down.start - runs[-1][-1].start <= thresholds.episode_gap_ms:
            runs[-1].append(down)
        else:
            runs.append([down])
    return [Episode(seat, run) for run in runs if len(run) >= thresholds.episode_minimum]


def episodes(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[Episode]:
    found: list[Episode] = []
    for seat, of_seat in sorted(all_intervals(before(history, window.end_ms)).items()):
        found += _episodes(seat, _downs(of_seat, window), thresholds)
    return found


def flaps_by_seat(history: HistoryRows, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    rows = []
    for seat, of_seat in sorted(all_intervals(before(history, window.end_ms)).items()):
        downs = _downs(of_seat, window)
        flaps = [
            down
            for down in downs
            if down.then == UP and down.end is not None and 0 < down.end - down.start < thresholds.flap_ms
        ]
        found = _episodes(seat, downs, thresholds)
        if flaps or found:
            rows.append(
                {
                    "cluster": seat[0],
                    "broker": seat[1],
                    "broker_id": seat[2],
                    "flaps": len(flaps),
                    "episodes": [
                        {
                            "first_ms": episode.downs[0].start,
                            "last_ms": episode.downs[-1].start,
                            "number": len(episode.downs),
                        }
                        for episode in found
                    ],
                }
            )
    return rows
