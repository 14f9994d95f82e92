"""Whether a measurement grows: a straight line through its means per minute, with a confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import Final

CONFIDENCE: Final = 0.99
"""With a dozen measurements, an interval of 95 % would raise a false alarm in every second run."""
BLOCK_S: Final = 60.0
LEAST_BLOCKS: Final = 4
LEAST_FREEDOM: Final = 3
MOST_CORRELATION: Final = 0.95

Point = tuple[float, float]
"""Seconds since the start, and the value."""


@dataclass(frozen=True)
class Slope:
    """Values per hour. `half_width` is half of the confidence interval."""

    mean: float
    per_hour: float
    half_width: float
    blocks: int

    @property
    def lowest(self) -> float:
        return self.per_hour - self.half_width

    @property
    def highest(self) -> float:
        return self.per_hour + self.half_width

    @property
    def is_zero_within_noise(self) -> bool:
        return self.lowest <= 0 <= self.highest

    @property
    def percent_per_hour(self) -> float:
        return 100 * self.per_hour / self.mean if self.mean else 0.0


def slope_of(points: Sequence[Point], *, block_s: float = BLOCK_S) -> Slope | None:
    """None when there are too few points.

    Samples a few seconds apart are alike, and would make the interval too narrow. So the line goes through the means of
    minutes, and the interval is widened by the correlation that is left between neighbouring minutes: n minutes that
    are alike count as fewer independent ones.
    """
    blocks = _block_means(points, block_s)
    if len(blocks) < LEAST_BLOCKS:
        return None
    hours, values = [at / 3600 for at, _ in blocks], [value for _, value in blocks]
    centre, mean = fmean(hours), fmean(values)
    spread = sum((hour - centre) ** 2 for hour in hours)
    per_hour = sum((hour - centre) * (value - mean) for hour, value in zip(hours, values, strict=True)) / spread
    residuals = [value - mean - per_hour * (hour - centre) for hour, value in zip(hours, values, strict=True)]
    squares = sum(residual**2 for residual in residuals)
    alike = _correlation(residuals, squares)
    independent = len(blocks) * (1 - alike) / (1 + alike)
    error = math.sqrt(squares / (len(blocks) - 2) / spread * len(blocks) / independent)
    freedom = max(int(independent) - 2, LEAST_FREEDOM)
    return Slope(mean, per_hour, student_quantile((1 + CONFIDENCE) / 2, freedom) * error, len(blocks))


def _block_means(points: Sequence[Point], block_s: float) -> list[Point]:
    blocks: dict[int, list[Point]] = {}
    for point in points:
        blocks.setdefault(int(point[0] // block_s), []).append(point)
    return [(fmean(at for at, _ in block), fmean(value for _, value in block)) for _, block in sorted(blocks.items())]


def _correlation(residuals: Sequence[float], squares: float) -> float:
    """Between neighbours. Around a fitted line, a short series shows less of it than there is: by about (2 + 4r) / n,
    which is added here.
    """
    if squares == 0:
        return 0.0
    number = len(residuals)
    seen = sum(a * b for a, b in pairwise(residuals)) / squares
    return min(max((seen + 2 / number) / max(1 - 4 / number, 0.1), 0.0), MOST_CORRELATION)


def student_quantile(probability: float, freedom: int) -> float:
    """Of Student's distribution, by its expansion around the normal one: off by 0.1 % at ten degrees of freedom."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
