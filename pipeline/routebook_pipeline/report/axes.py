"""Where the ticks of a picture stand, and the one frame that all pictures share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from routebook_pipeline.report import formats
from routebook_pipeline.report.markup import Html, tag

WIDTH: Final = 960
"""Of every picture, in its own units; it is scaled to the page."""

_STEPS_MS: Final = (
    *(n * SECOND_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 4, 7, 14, 28, 91, 182, 365)),
)
_MOST_TIME_TICKS: Final = 9


@dataclass(frozen=True)
class Scale:
    """From values to units of the picture."""

    lowest: float
    highest: float
    start: float
    end: float
    magnitudes: bool = False
    """From 0, by powers of ten."""

    def __call__(self, value: float) -> float:
        far, span = value - self.lowest, self.highest - self.lowest
        if self.magnitudes:
            far, span = by_magnitude(far), by_magnitude(span)
        return self.start if span <= 0 else self.start + far / span * (self.end - self.start)


def picture(label: str, height: float, body: Sequence[Html], *, width: int = WIDTH) -> Html:
    """`label` is read aloud in its place; the table beside it has the figures."""
    return tag("svg", *body, viewBox=f"0 0 {width} {height:.0f}", role="img", aria_label=label)


def text(x: float, y: float, said: str, css: str = "", anchor: str | None = None) -> Html:
    return tag("text", said, x=x, y=y, class_=css or None, text_anchor=anchor)


def rule(x1: float, y1: float, x2: float, y2: float, css: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=css)


def value_ticks(highest: float, most: int = 4) -> list[float]:
    """From 0 in even steps, 1, 2 or 5 times a power of ten, the last one at or above the highest value."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    rough = highest / most
    power = 10.0 ** math.floor(math.log10(rough))
    # Quarters of a hundred, but none of ten: what is counted comes in whole ones.
    times = (1, 2, 2.5, 5, 10) if power >= 10 else (1, 2, 5, 10)
    step = next(power * one for one in times if power * one >= rough * (1 - 1e-9))
    return [step * n for n in range(math.ceil(highest / step - 1e-9) + 1)]


def duration_ticks(highest: float, most: int = 5) -> list[float]:
    """The same for milliseconds: in steps that a clock has."""
    step = next((step for step in _STEPS_MS if highest <= step * most), None)
    if step is None or highest < _STEPS_MS[0]:
        return value_ticks(highest)
    return [float(step * n) for n in range(math.ceil(highest / step) + 1)]


def powers_of_ten(highest: float) -> list[float]:
    return [0.0, *(10.0**n for n in range(1, math.ceil(math.log10(max(highest, 10))) + 1))]


def by_magnitude(value: float) -> float:
    """Ten times as much is one step more; nothing stays nothing."""
    return math.log10(1 + value)


def both_ways(lowest: float, highest: float) -> list[float]:
    """From a negative value to a positive one, in steps of one length."""
    ticks = value_ticks(max(highest, -lowest))
    above = [one for one in ticks if one < highest] + [one for one in ticks if one >= highest][:1]
    below = [-one for one in ticks if one < -lowest] + [-one for one in ticks if one >= -lowest][:1]
    return sorted({*above, *(one for one in below if one)})


def time_ticks(start_ms: int, end_ms: int) -> list[tuple[int, str]]:
    """At round times of UTC inside the window; nothing when it is longer than anybody looks at."""
    span = end_ms - start_ms
    step = next((step for step in _STEPS_MS if span <= step * _MOST_TIME_TICKS), None)
    if step is None or span <= 0:
        return []
    first = -(-start_ms // step) * step
    return [(at, _tick_name(at, step)) for at in range(first, end_ms + 1, step)]


def _tick_name(at: int, step: int) -> str:
    return formats.day(at) if step >= DAY_MS or at % DAY_MS == 0 else formats.clock(at)
