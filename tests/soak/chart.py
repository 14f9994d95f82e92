"""The chart of a long run as SVG: one panel per measurement, one above the other, and a strip with the faults."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from tests.soak.slopes import Point

WIDTH: Final = 960
LEFT: Final = 64
RIGHT: Final = 150
PANEL_HEIGHT: Final = 92
GAP: Final = 34
ROW_HEIGHT: Final = 15
COLOURS: Final = ("#0b5cad", "#c2410c", "#4d7c0f")
_TICKS: Final = 3


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Mapping[str, Sequence[Point]]
    """Name of a line, and its points."""


@dataclass(frozen=True)
class Chart:
    title: str
    panels: Sequence[Panel]
    faults: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Kind of fault, and when each began and ended, in seconds."""

    def svg(self, duration_s: float) -> str:
        body: list[str] = []
        top = 40.0
        for panel in self.panels:
            body += _panel(panel, top, duration_s)
            top += PANEL_HEIGHT + GAP
        body += self._fault_rows(top, duration_s)
        height = top + ROW_HEIGHT * len(self.faults) + 40
        body += _time_axis(height - 14, duration_s)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
                f'aria-label="{escape(self.title)}" font-family="sans-serif" font-size="11">',
                f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
                f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(self.title)}</text>',
                *body,
                "</svg>\n",
            ]
        )

    def _fault_rows(self, top: float, duration_s: float) -> list[str]:
        drawn = [f'<text x="{LEFT}" y="{top - 8:.0f}" font-weight="bold">faults</text>'] if self.faults else []
        for row, (kind, spans) in enumerate(sorted(self.faults.items())):
            y = top + row * ROW_HEIGHT
            drawn.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 9:.1f}">{escape(kind)}</text>')
            for began, ended in spans:
                start, end = _across(began, duration_s), _across(ended, duration_s)
                drawn.append(
                    f'<rect x="{start:.1f}" y="{y:.1f}" width="{max(end - start, 2):.1f}" height="10" fill="#b91c1c"/>'
                )
        return drawn


def _panel(panel: Panel, top: float, duration_s: float) -> list[str]:
    values = [value for points in panel.lines.values() for _, value in points]
    ticks = value_ticks(max(values, default=1.0))
    bottom = top + PANEL_HEIGHT

    def up(value: float) -> float:
        return bottom - value / ticks[-1] * PANEL_HEIGHT

    drawn = [f'<text x="{LEFT}" y="{top - 8:.0f}" font-weight="bold">{escape(panel.title)}</text>']
    drawn += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}" stroke="#d4d4d4"/>'
        f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in ticks
    ]
    for number, (name, points) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_across(at, duration_s):.1f},{up(value):.1f}" for at, value in points)
        # Each line has a dash pattern of its own, so that it can be recognised without its colour.
        dashes = ("none", "5 2", "1 2")[number % 3]
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3" stroke-dasharray="{dashes}"/>'
        )
        y = top + 12 + 15 * number
        drawn.append(
            f'<line x1="{WIDTH - RIGHT + 8}" x2="{WIDTH - RIGHT + 28}" y1="{y - 4:.0f}" y2="{y - 4:.0f}" '
            f'stroke="{colour}" stroke-dasharray="{dashes}"/>'
            f'<text x="{WIDTH - RIGHT + 32}" y="{y:.0f}">{escape(name)}</text>'
        )
    return drawn


def _time_axis(y: float, duration_s: float) -> list[str]:
    minutes = duration_s / 60
    step = next((step for step in (1, 2, 5, 10, 15, 30, 60, 120) if minutes / step <= 12), 240)
    return [
        f'<text x="{_across(minute * 60, duration_s):.1f}" y="{y:.0f}" text-anchor="middle">{minute} min</text>'
        for minute in range(0, int(minutes) + 1, step)
    ]


def _across(at_s: float, duration_s: float) -> float:
    return LEFT + min(at_s / duration_s, 1.0) * (WIDTH - LEFT - RIGHT)


def value_ticks(highest: float) -> list[float]:
    """From 0 in equal steps of 1, 2 or 5 times a power of ten; the last one is at or above the highest value."""
    if highest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(highest / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * _TICKS >= highest * (1 - 1e-9))
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]
