"""5: what went down and came back at once, or again and again?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.states import DOWN, UP, Interval, all_intervals
from tests.pipeline.oracle.told import Seat, Told, before


@dataclass(frozen=True)
class Episode:
    seat: Seat
    downs: Sequence[Interval]


def _downs(of_seat: Sequence[Interval], window: Window) -> list[Interval]:
    return [found for found in of_seat if found.state == DOWN and window.start_ms <= found.start < window.end_ms]


def _episodes(seat: Seat, downs: Sequence[Interval], thresholds: Thresholds) -> list[Episode]:
    runs: list[list[Interval]] = []
    for down in downs:
        if runs and down.start - runs[-1][-1].start <= thresholds.episode_gap_ms:
            runs[-1].append(down)
        else:
            runs.append([down])
    return [Episode(seat, run) for run in runs if len(run) >= thresholds.episode_minimum]


def episodes(told: Told, window: Window, thresholds: Thresholds = DEFAULTS) -> list[Episode]:
    found: list[Episode] = []
    for seat, of_seat in sorted(all_intervals(before(told, window.end_ms)).items()):
        found += _episodes(seat, _downs(of_seat, window), thresholds)
    return found


def by_seat(told: Told, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    rows = []
    for seat, of_seat in sorted(all_intervals(before(told, window.end_ms)).items()):
        downs = _downs(of_seat, window)
        flaps = [
            down
            for down in downs
            if down.then == UP and down.end is not None and down.end - down.start < thresholds.flap_ms
        ]
        several = _episodes(seat, downs, thresholds)
        if flaps or several:
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
                        for episode in several
                    ],
                }
            )
    return rows
