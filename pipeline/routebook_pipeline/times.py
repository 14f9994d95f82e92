"""Points in time and durations as operators write them: `2026-05-01T12:00Z`, `-2h`, `now`, `30s`.

A time without a zone is refused, because it would mean something else on each machine. Relative times are resolved
late, on the store's clock if the store answers: on a machine whose clock is ahead, `now` would lie after every entry.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from routebook_pipeline.errors import WrongUsageError

FORMS: Final = "an ISO 8601 time with its zone (2026-05-01T12:00Z, 2026-05-01T14:00+02:00), a time ago (-2h), or `now`"

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_LONGEST_MS: Final = 20_000 * UNITS_MS["d"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class When:
    """A point in time: `ms` if it is absolute, `ago_ms` if it is relative to now. Exactly one of them is set."""

    ms: int | None = None
    ago_ms: int | None = None

    def on_clock(self, now_ms: int) -> int:
        return self.ms if self.ms is not None else now_ms - (self.ago_ms or 0)


def parse_when(text: str) -> When:
    if text == "now":
        return When(ago_ms=0)
    if text.startswith("-"):
        return When(ago_ms=parse_duration(text[1:]))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsageError(f"{text!r} is not a point in time. Allowed: {FORMS}.") from None
    if at.tzinfo is None:
        suggestion = f"{text}T00:00Z" if _NAIVE_DAY.fullmatch(text) else f"{text}Z"
        raise WrongUsageError(f"{text!r} has no zone. Allowed: {FORMS}. For UTC write {suggestion}")
    return When(ms=(at - _EPOCH) // timedelta(milliseconds=1))


def parse_duration(text: str) -> int:
    """A duration such as `30s`, in milliseconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise WrongUsageError(
            f"{text!r} is not a duration. Allowed: a number and one of {', '.join(UNITS_MS)}, such as 30s."
        )
    ms = round(float(found[1]) * UNITS_MS[found[2]])
    if ms > _LONGEST_MS:
        raise WrongUsageError(f"{text!r} is too long. Allowed: up to 20000d.")
    return ms


def iso(ms: int) -> str:
    """The form in which every answer prints an instant."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day_of(ms: int) -> str:
    """The UTC day, such as `2026-05-01`."""
    return (_EPOCH + timedelta(milliseconds=ms)).date().isoformat()


def human_duration(ms: float) -> str:
    """A duration in its two largest units, such as `1 h 5 m`."""
    if ms < 0:
        return f"-{human_duration(-ms)}"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s".replace(".0 s", " s")
    seconds = round(ms / 1_000)
    for large, small in (("d", "h"), ("h", "m"), ("m", "s")):
        many, rest = divmod(seconds, UNITS_MS[large] // 1_000)
        if many:
            few = rest // (UNITS_MS[small] // 1_000)
            return f"{many} {large} {few} {small}" if few else f"{many} {large}"
    return f"{seconds} s"
