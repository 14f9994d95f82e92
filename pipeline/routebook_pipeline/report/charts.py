"""The charts of the report as inline SVG: axes, bands, lines, bars and columns.

Colours and line widths come from the style sheet (`style.css`). A colour never carries information alone: height or a
pattern repeats it, and every chart has a table with the same figures.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from routebook_pipeline.report import formats
from routebook_pipeline.report.data import UP, Band
from routebook_pipeline.report.markup import Html, shortened, tag, width_of

WIDTH: Final = 960
"""The width of every chart in SVG units; the page scales it."""

_STEPS_MS: Final = (
    *(n * SECOND_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 4, 7, 14, 28, 91, 182, 365)),
)
_MOST_TIME_TICKS: Final = 9


@dataclass(frozen=True)
class Scale:
    """Maps values to SVG units."""

    lowest: float
    highest: float
    start: float
    end: float
    logarithmic: bool = False
    """Powers of ten have equal distances; the scale starts at 0."""

    def __call__(self, value: float) -> float:
        offset, span = value - self.lowest, self.highest - self.lowest
        if self.logarithmic:
            offset, span = log_of(offset), log_of(span)
        return self.start if span <= 0 else self.start + offset / span * (self.end - self.start)


def picture(label: str, height: float, body: Sequence[Html], *, width: int = WIDTH) -> Html:
    """`label` is what a screen reader says instead of the chart; the table beside the chart has the figures."""
    return tag("svg", *body, viewBox=f"0 0 {width} {height:.0f}", role="img", aria_label=label)


def text(x: float, y: float, content: str, css: str = "", anchor: str | None = None) -> Html:
    return tag("text", content, x=x, y=y, class_=css or None, text_anchor=anchor)


def rule(x1: float, y1: float, x2: float, y2: float, css: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=css)


def value_ticks(highest: float, most: int = 4) -> list[float]:
    """From 0 in equal steps of 1, 2 or 5 times a power of ten; the last tick is at or above the highest value."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    rough = highest / most
    power = 10.0 ** math.floor(math.log10(rough))
    # 25 is a good step and 2.5 is not, since counts are whole numbers.
    factors = (1, 2, 2.5, 5, 10) if power >= 10 else (1, 2, 5, 10)
    step = next(power * factor for factor in factors if power * factor >= rough * (1 - 1e-9))
    return [step * n for n in range(math.ceil(highest / step - 1e-9) + 1)]


def duration_ticks(highest: float, most: int = 5) -> list[float]:
    """The same for milliseconds, in steps of whole seconds, minutes, hours or days."""
    step = next((step for step in _STEPS_MS if highest <= step * most), None)
    if step is None or highest < _STEPS_MS[0]:
        return value_ticks(highest)
    return [float(step * n) for n in range(math.ceil(highest / step) + 1)]


def powers_of_ten(highest: float) -> list[float]:
    return [0.0, *(10.0**n for n in range(1, math.ceil(math.log10(max(highest, 10))) + 1))]


def log_of(value: float) -> float:
    """The decimal logarithm, shifted so that 0 stays 0."""
    return math.log10(1 + value)


def both_ways(lowest: float, highest: float) -> list[float]:
    """Ticks from a negative value to a positive one, in equal steps."""
    ticks = value_ticks(max(highest, -lowest))
    above = [tick for tick in ticks if tick < highest] + [tick for tick in ticks if tick >= highest][:1]
    below = [-tick for tick in ticks if tick < -lowest] + [-tick for tick in ticks if tick >= -lowest][:1]
    return sorted({*above, *(tick for tick in below if tick)})


def time_ticks(start_ms: int, end_ms: int) -> list[tuple[int, str]]:
    """Ticks at round UTC times inside the window, with their labels; none if the window is longer than nine years."""
    span = end_ms - start_ms
    step = next((step for step in _STEPS_MS if span <= step * _MOST_TIME_TICKS), None)
    if step is None or span <= 0:
        return []
    first = -(-start_ms // step) * step
    return [(at, _tick_label(at, step)) for at in range(first, end_ms + 1, step)]


def _tick_label(at: int, step: int) -> str:
    return formats.day(at) if step >= DAY_MS or at % DAY_MS == 0 else formats.clock(at)


LABEL_WIDTH: Final = 210
"""Room for names on the left."""
ROW_HEIGHT: Final = 21
MINIMUM_BAND_WIDTH: Final = 2.5
"""A band is at least this wide, and bands that are closer together are drawn as one.

So short bands stay visible, and a broker that flapped a million times does not make a page of a million pieces.
"""
TICK_LETTER: Final = 6.2
"""Width of a letter below a chart."""
LINES: Final = 6
"""The maximum number of lines in a chart. More are unreadable; the table has all."""

Show = Callable[[float], str]


MOST_DOTS: Final = 62
"""The maximum number of dots on a line."""


@dataclass(frozen=True)
class Lane:
    """One seat's row in the chart of bands."""

    label: str
    bands: Sequence[Band]
    figure: str


def bands(label: str, lanes: Sequence[Lane], start_ms: int, end_ms: int) -> Html:
    across = Scale(start_ms, end_ms, LABEL_WIDTH, WIDTH - 96)
    bottom = 8 + ROW_HEIGHT * len(lanes)
    drawn = [_unknown_pattern()]
    for at, named in time_ticks(start_ms, end_ms):
        drawn += [rule(across(at), 4, across(at), bottom + 4, "grid")]
        drawn += [text(across(at), bottom + 18, named, "tick", _anchor(across(at), across))]
    for number, lane in enumerate(lanes):
        top = 8 + ROW_HEIGHT * number
        drawn.append(tag("text", tag("title", lane.label), shortened(lane.label, 30), x=4, y=top + 13, class_="name"))
        drawn += [_band(piece, across, top) for piece in joined(lane.bands, across)]
        drawn.append(text(WIDTH - 4, top + 13, lane.figure, "figure", "end"))
    return picture(label, bottom + 26, drawn)


def joined(bands: Sequence[Band], across: Scale) -> list[list[Band]]:
    """Groups the bands of one state that would touch in the chart. UP comes first, so that it never hides others."""
    latest: dict[str, list[Band]] = {}
    groups: list[list[Band]] = []
    for band in sorted(bands, key=lambda band: (band.state != UP, band.start_ms)):
        group = latest.get(band.state)
        if group is None or across(band.start_ms) - across(group[-1].end_ms) > MINIMUM_BAND_WIDTH:
            latest[band.state] = group = []
            groups.append(group)
        group.append(band)
    return groups


def _band(group: Sequence[Band], across: Scale, top: float) -> Html:
    state, start, end = group[0].state, group[0].start_ms, max(band.end_ms for band in group)
    lasted = sum(band.end_ms - band.start_ms for band in group)
    times = "" if len(group) == 1 else f"{len(group)} times, in total "
    title = f"{state}, {times}{formats.duration(lasted)}: {formats.instant(start)} to {formats.instant(end)}"
    y, height = (top + 6, 5) if state == UP else (top + 1, 15) if state == "unplanned" else (top + 4, 9)
    width = max(MINIMUM_BAND_WIDTH, across(end) - across(start))
    return tag("rect", tag("title", title), x=across(start), y=y, width=width, height=height, class_=state)


def _unknown_pattern() -> Html:
    stripes = tag("path", d="M0 6L6 0", class_="stripe")
    pattern = tag("pattern", stripes, id="stripes", width=6, height=6, patternUnits="userSpaceOnUse")
    return tag("defs", pattern)


def line(label: str, series: Mapping[str, Sequence[tuple[int, float]]], show: Show = formats.count) -> Html:
    """Values over time. Each line has its name at its end, so no legend is needed."""
    shown = {name: sorted(points) for name, points in list(series.items())[:LINES] if points}
    times = [at for points in shown.values() for at, _ in points]
    if not times:
        return picture(label, 20, [])
    top, bottom = 12.0, 210.0
    ticks = value_ticks(max(value for points in shown.values() for _, value in points))
    across, up = Scale(min(times), max(times), 64, WIDTH - LABEL_WIDTH), Scale(0, ticks[-1], bottom, top)
    drawn = _value_rules(ticks, up, 64, WIDTH - LABEL_WIDTH, show)
    for at, named in time_ticks(min(times), max(times)):
        drawn.append(text(across(at), bottom + 18, named, "tick", "middle"))
    free = bottom + 15.0
    for name, points in sorted(shown.items(), key=lambda one: one[1][-1][1]):
        css = f"s{list(shown).index(name)}"
        path = " ".join(f"{'L' if n else 'M'}{across(at):.1f} {up(value):.1f}" for n, (at, value) in enumerate(points))
        drawn.append(tag("path", d=path, class_=f"line {css}"))
        for at, value in points[:: -(-len(points) // MOST_DOTS)]:
            title = f"{name}, {formats.instant(at)}: {show(value)}"
            drawn.append(tag("circle", tag("title", title), cx=across(at), cy=up(value), r=3, class_=f"dot {css}"))
        free = min(free - 15, up(points[-1][1]) + 4)
        named = tag("tspan", "● ", class_=f"ink {css}")
        drawn.append(tag("text", named, shortened(name, 24), x=WIDTH - LABEL_WIDTH + 12, y=free, class_="name"))
    return picture(label, bottom + 28, drawn)


@dataclass(frozen=True)
class Part:
    """One colour of a bar chart, with a value for each category. Negative values grow in the other direction."""

    name: str
    css: str
    values: Sequence[float]


def bars(
    label: str, categories: Sequence[str], parts: Sequence[Part], show: Show = formats.count, limit: float | None = None
) -> Html:
    """Horizontal bars, one per category, with their names on the left. `limit` is drawn as a line."""
    ends = [sum(max(0.0, part.values[n]) for part in parts) for n in range(len(categories))]
    starts = [sum(min(0.0, part.values[n]) for part in parts) for n in range(len(categories))]
    highest, lowest = max([*ends, limit or 0, 0]), min([*starts, 0])
    ticks = both_ways(lowest, highest)
    across = Scale(ticks[0], ticks[-1], LABEL_WIDTH, WIDTH - 60)
    bottom = 8 + 26 * len(categories)
    drawn = [rule(across(one), 4, across(one), bottom, "zero" if one == 0 else "grid") for one in ticks]
    drawn += [text(across(one), bottom + 16, show(abs(one)), "tick", "middle") for one in ticks]
    for number, category in enumerate(categories):
        top = 8.0 + 26 * number
        drawn.append(tag("text", tag("title", category), shortened(category, 30), x=4, y=top + 15, class_="name"))
        right = left = 0.0
        for part in parts:
            value = part.values[number]
            start = right if value >= 0 else left + value
            right, left = right + max(0.0, value), left + min(0.0, value)
            title = f"{category}, {part.name}: {show(abs(value))}"
            drawn += _bar(
                title,
                part.css,
                x=across(start),
                y=top + 3,
                width=across(start + abs(value)) - across(start),
                height=17.0,
            )
    if limit is not None:
        drawn.append(rule(across(limit), 2, across(limit), bottom + 2, "limit"))
    return picture(label, bottom + 24, drawn)


def columns(
    label: str,
    categories: Sequence[str],
    parts: Sequence[Part],
    show: Show = formats.count,
    *,
    marks: Sequence[tuple[float, str]] = (),
    steps: Callable[[float], list[float]] = value_ticks,
    logarithmic: bool = False,
) -> Html:
    """Vertical bars: days, or the buckets of a histogram. The place of a mark is counted in columns.

    `logarithmic`: for charts with one part, in which small values matter as much as large ones.
    """
    top, bottom = 22.0, 200.0
    heights = [sum(part.values[n] for part in parts) for n in range(len(categories))]
    ticks = (powers_of_ten if logarithmic else steps)(max([*heights, 0]))
    across, up = Scale(0, len(categories), 86, WIDTH - 8), Scale(0, ticks[-1], bottom, top, logarithmic)
    drawn = _value_rules(ticks, up, 86, WIDTH - 8, show)
    wide = (WIDTH - 94) / max(1, len(categories))
    every = math.ceil((max(map(width_of, categories), default=0) + 2) * TICK_LETTER / wide) if categories else 1
    for number, category in enumerate(categories):
        floor = 0.0
        for part in parts:
            value = part.values[number]
            title = f"{category}, {part.name}: {show(value)}"
            left = across(number) + min(3.0, wide * 0.08)
            drawn += _bar(
                title,
                part.css,
                x=left,
                y=up(floor + value),
                width=min(46.0, wide * 0.84),
                height=up(floor) - up(floor + value),
            )
            floor += value
        if number % every == 0:
            middle = across(number) + min(23.0, wide / 2)
            is_last = middle + width_of(category) * TICK_LETTER / 2 > WIDTH
            drawn.append(
                text(WIDTH if is_last else middle, bottom + 17, category, "tick", "end" if is_last else "middle")
            )
    for place, label_of_mark in marks:
        drawn += [rule(across(place), top - 6, across(place), bottom, "limit")]
        drawn += [text(across(place) + 4, top - 8, label_of_mark, "tick", _anchor(across(place), across))]
    return picture(label, bottom + 28, drawn)


def _bar(title: str, css: str, *, x: float, y: float, width: float, height: float) -> list[Html]:
    if width <= 0 or height <= 0:
        return []
    size = {"width": max(1.0, width), "height": max(1.0, height)}
    return [tag("rect", tag("title", title), x=x, y=y, class_=css, **size)]


def _value_rules(ticks: Sequence[float], up: Scale, left: float, right: float, show: Show) -> list[Html]:
    rules = [rule(left, up(one), right, up(one), "zero" if one == 0 else "grid") for one in ticks]
    return rules + [text(left - 8, up(one) + 4, show(one), "tick", "end") for one in ticks]


def _anchor(x: float, across: Scale) -> str:
    """Text near the left or right edge is anchored so that it stays inside the chart."""
    return "start" if x < across.start + 24 else "end" if x > across.end - 24 else "middle"


def legend(*entries: tuple[str, str]) -> Html:
    """The legend for charts whose parts are not labelled in the chart; entries are `(css, meaning)`."""
    swatches = [tag("span", tag("i", class_=f"swatch {css}"), meaning) for css, meaning in entries]
    return tag("p", *swatches, class_="legend")
