"""Random downtimes of a made-up fleet: independent failures, a lost rack, and one broker that flaps."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window

START_MS = 1_793_491_200_000  # 2026-11-01T00:00Z
FAILURES_A_WEEK = {"payments": 0.05, "orders-eu": 0.2, "orders-us": 0.25, "telemetry": 1.3}
UNPLANNED_CAUSES = ("expired", "connection-lost")
FIRST_VERSION = 78_411
OTHER_CHANGES_A_DAY = 44
"""Changes that are not downtimes, such as new topics."""


@dataclass(frozen=True)
class Downtime:
    start_ms: int
    end_ms: int
    cause: str
    detection_ms: int

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def is_expired_with_the_rack(self) -> bool:
        return self.cause == "expired" and self.length_ms >= 55 * MINUTE_MS

    @property
    def version(self) -> int:
        """The version of the entry that began it; versions rise with time."""
        days = (self.start_ms - START_MS) / DAY_MS
        return FIRST_VERSION + int(days * 2 * OTHER_CHANGES_A_DAY)

    @property
    def is_planned(self) -> bool:
        return self.cause not in UNPLANNED_CAUSES


Seat = tuple[str, str, int]
Downtimes = dict[Seat, list[Downtime]]


def make_downtimes(rng: random.Random, window: Window, clusters: Mapping[str, int]) -> Downtimes:
    made: Downtimes = {}
    weeks = window.length_ms / (7 * DAY_MS)
    lost_rack = window.start_ms + int(window.length_ms * 0.62)
    for cluster, groups in clusters.items():
        for number in range(groups):
            for seat in (0, 1):
                downs = []
                for _ in range(_poisson(rng, FAILURES_A_WEEK.get(cluster, 0.2) * weeks)):
                    length = int(rng.lognormvariate(math.log(90 * SECOND_MS), 1.3))
                    cause = rng.choice(("expired", "connection-lost", "connection-lost"))
                    downs.append(_downtime(rng, rng.randint(window.start_ms, window.end_ms - 1), length, cause))
                if rng.random() < 0.3:
                    start = window.start_ms + rng.randint(1, max(1, int(weeks * 7) - 1)) * DAY_MS + 2 * HOUR_MS
                    start += number * 20 * MINUTE_MS
                    length = rng.randint(4, 40) * MINUTE_MS
                    downs.append(
                        _downtime(rng, start, length, rng.choice(("unregistered", "unregistered", "operator")))
                    )
                if cluster == "telemetry" and number in range(3, 12) and seat == 0:
                    start = lost_rack + rng.randint(0, 20 * SECOND_MS)
                    downs.append(_downtime(rng, start, 55 * MINUTE_MS + rng.randint(0, 25) * MINUTE_MS, "expired"))
                if cluster == "telemetry" and number == 11 and seat == 1:
                    start = window.start_ms + window.length_ms // 3
                    for _ in range(9):
                        downs.append(_downtime(rng, start, rng.randint(8, 50) * SECOND_MS, "connection-lost"))
                        start += rng.randint(2, 8) * MINUTE_MS
                made[cluster, f"broker-{number + 1:02d}", seat] = _apart(downs, window)
    return made


def _downtime(rng: random.Random, start: int, length: int, cause: str) -> Downtime:
    detection = rng.randint(110, 125) * SECOND_MS if cause == "expired" else rng.randint(3, 6) * SECOND_MS
    return Downtime(start, start + length, cause, 0 if cause not in UNPLANNED_CAUSES else detection)


def _poisson(rng: random.Random, mean: float) -> int:
    number, left = 0, math.exp(-mean)
    chance = rng.random()
    while chance > left:
        chance *= rng.random()
        number += 1
    return number


def _apart(downs: list[Downtime], window: Window) -> list[Downtime]:
    kept: list[Downtime] = []
    for one in sorted(downs, key=lambda absence: absence.start_ms):
        if one.start_ms < window.end_ms and (not kept or one.start_ms > kept[-1].end_ms + MINUTE_MS):
            kept.append(one)
    return kept
