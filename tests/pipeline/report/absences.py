"""When the brokers of a made-up fleet were away: a seeded dice, a lost rack, and one that flaps."""

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
"""Registrations of topics and the like, between absences."""


@dataclass(frozen=True)
class Absence:
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
        """Of the entry that began it: rising with time."""
        days = (self.start_ms - START_MS) / DAY_MS
        return FIRST_VERSION + int(days * 2 * OTHER_CHANGES_A_DAY)

    @property
    def is_planned(self) -> bool:
        return self.cause not in UNPLANNED_CAUSES


Seat = tuple[str, str, int]
Absences = dict[Seat, list[Absence]]


def make_absences(dice: random.Random, window: Window, clusters: Mapping[str, int]) -> Absences:
    made: Absences = {}
    weeks = window.length_ms / (7 * DAY_MS)
    lost_rack = window.start_ms + int(window.length_ms * 0.62)
    for cluster, groups in clusters.items():
        for number in range(groups):
            for seat in (0, 1):
                gone = []
                for _ in range(_poisson(dice, FAILURES_A_WEEK.get(cluster, 0.2) * weeks)):
                    length = int(dice.lognormvariate(math.log(90 * SECOND_MS), 1.3))
                    cause = dice.choice(("expired", "connection-lost", "connection-lost"))
                    gone.append(_absence(dice, dice.randint(window.start_ms, window.end_ms - 1), length, cause))
                if dice.random() < 0.3:
                    start = window.start_ms + dice.randint(1, max(1, int(weeks * 7) - 1)) * DAY_MS + 2 * HOUR_MS
                    start += number * 20 * MINUTE_MS
                    length = dice.randint(4, 40) * MINUTE_MS
                    gone.append(
                        _absence(dice, start, length, dice.choice(("unregistered", "unregistered", "operator")))
                    )
                if cluster == "telemetry" and number in range(3, 12) and seat == 0:
                    start = lost_rack + dice.randint(0, 20 * SECOND_MS)
                    gone.append(_absence(dice, start, 55 * MINUTE_MS + dice.randint(0, 25) * MINUTE_MS, "expired"))
                if cluster == "telemetry" and number == 11 and seat == 1:
                    start = window.start_ms + window.length_ms // 3
                    for _ in range(9):
                        gone.append(_absence(dice, start, dice.randint(8, 50) * SECOND_MS, "connection-lost"))
                        start += dice.randint(2, 8) * MINUTE_MS
                made[cluster, f"broker-{number + 1:02d}", seat] = _apart(gone, window)
    return made


def _absence(dice: random.Random, start: int, length: int, cause: str) -> Absence:
    detection = dice.randint(110, 125) * SECOND_MS if cause == "expired" else dice.randint(3, 6) * SECOND_MS
    return Absence(start, start + length, cause, 0 if cause not in UNPLANNED_CAUSES else detection)


def _poisson(dice: random.Random, mean: float) -> int:
    number, left = 0, math.exp(-mean)
    chance = dice.random()
    while chance > left:
        chance *= dice.random()
        number += 1
    return number


def _apart(gone: list[Absence], window: Window) -> list[Absence]:
    kept: list[Absence] = []
    for one in sorted(gone, key=lambda absence: absence.start_ms):
        if one.start_ms < window.end_ms and (not kept or one.start_ms > kept[-1].end_ms + MINUTE_MS):
            kept.append(one)
    return kept
