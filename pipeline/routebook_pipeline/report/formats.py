"""Formats figures for the page. Rounding never makes a figure look better than it is."""

import math
from datetime import UTC, datetime
from typing import Final

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

NOTHING: Final = "—"
"""Shown for null: nothing to divide by, or it never happened."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNITS: Final = (
    (HOUR_MS, (MINUTE_MS, SECOND_MS, ("min", "s"))),
    (2 * DAY_MS, (HOUR_MS, MINUTE_MS, ("h", "min"))),
    (math.inf, (DAY_MS, HOUR_MS, ("d", "h"))),
)


def count(number: float | None) -> str:
    return NOTHING if number is None else f"{number:,.0f}"


def decimal(number: float | None) -> str:
    if number is None or not math.isfinite(number):
        return NOTHING
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.2f}"


def availability(ratio: float | None) -> str:
    """Rounded down: 99.99999 % is not 100 %, and 99.94996 % did not meet 99.95 %."""
    if ratio is None:
        return NOTHING
    if ratio >= 1:
        return "100 %"
    return f"{math.floor(ratio * 1_000_000 + 1e-6) / 10_000:.4f} %"


def objective(ratio: float) -> str:
    return f"{ratio * 100:.6f}".rstrip("0").rstrip(".") + " %"


def share(ratio: float | None) -> str:
    if ratio is None:
        return NOTHING
    if 0 < ratio < 0.01:
        return f"{ratio * 100:.2f} %" if ratio >= 0.000_05 else "< 0.01 %"
    return f"{ratio * 100:.1f}".removesuffix(".0") + " %"


def duration(ms: float | None) -> str:
    """In at most two units; the smaller one is left out if it is zero."""
    if ms is None:
        return NOTHING
    if ms < 0:
        return f"-{duration(-ms)}"
    if 0 < ms < SECOND_MS:
        return f"{ms:.0f} ms"
    if ms < MINUTE_MS:
        return f"{ms / SECOND_MS:.1f}".removesuffix(".0") + " s"
    large, small, names = next(units for below, units in _UNITS if ms < below)
    whole, rest = int(ms // large), int(ms % large // small)
    return f"{whole} {names[0]}" + (f" {rest:02d} {names[1]}" if rest else "")


def instant(ms: int | None) -> str:
    """UTC, to the second. The page says once that all times are UTC."""
    at = _datetime(ms)
    return NOTHING if ms is None else f"{ms} ms" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")


def day(ms: int) -> str:
    at = _datetime(ms)
    return f"{ms} ms" if at is None else f"{at.day} {_MONTHS[at.month - 1]}"


def clock(ms: int) -> str:
    at = _datetime(ms)
    return f"{ms} ms" if at is None else at.strftime("%H:%M")


def period(start_ms: int, end_ms: int) -> str:
    """`17 Nov 2026 to 24 Nov 2026` for whole days, else with the time of day."""
    if start_ms % DAY_MS or end_ms % DAY_MS:
        return f"{instant(start_ms)} to {instant(end_ms)}"
    years = [at.year if at else "" for at in (_datetime(start_ms), _datetime(end_ms))]
    return f"{day(start_ms)} {years[0]} to {day(end_ms)} {years[1]}"


def _datetime(ms: int | None) -> datetime | None:
    """None for times outside the calendar, which a wrong clock can produce."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / SECOND_MS, UTC)
    except (OverflowError, ValueError, OSError):
        return None
