"""4: how often did what fail, and for how long?"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from tests.pipeline.oracle.states import DOWN, UP, Interval, all_intervals, length
from tests.pipeline.oracle.told import Told, before, ratio


def _failures(seats: Sequence[Sequence[Interval]], window: Window, thresholds: Thresholds) -> dict[str, Any]:
    down = [
        found
        for of_seat in seats
        for found in of_seat
        if found.state == DOWN and window.start_ms <= found.start < window.end_ms
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


def by_seat(told: Told, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    """Every seat with evidence before the end of the window, as for availability: none failing is an answer, too."""
    return [
        {"cluster": seat[0], "broker": seat[1], "broker_id": seat[2], **_failures([of_seat], window, thresholds)}
        for seat, of_seat in sorted(all_intervals(before(told, window.end_ms)).items())
    ]


def by_cluster(told: Told, window: Window, thresholds: Thresholds = DEFAULTS) -> list[dict[str, Any]]:
    clusters: dict[str, list[list[Interval]]] = {}
    for seat, of_seat in sorted(all_intervals(before(told, window.end_ms)).items()):
        clusters.setdefault(seat[0], []).append(of_seat)
    return [
        {"cluster": cluster, "broker": None, "broker_id": None, **_failures(seats, window, thresholds)}
        for cluster, seats in clusters.items()
    ]
