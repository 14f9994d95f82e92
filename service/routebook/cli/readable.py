"""Values for people: ages, times, lists of names and columns that fit the terminal. A pipe gets all of everything."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from routebook.cli.output import printable

_CLOCK: Final = re.compile(r"(?P<hour>[0-2]?\d):(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d))?")
_COLUMN_GAP: Final = 2


def duration_text(ms: float) -> str:
    """One unit is enough to judge: 45 s, 12 min, 30 h, 4 d."""
    seconds = ms / 1000
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def age_text(ms: int | None) -> str | None:
    return None if ms is None else f"{duration_text(ms)} ago"


def time_text(ms: int | None) -> str | None:
    """With the zone, since a fleet and its operators may be in several."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def moment_text(ms: int) -> str:
    """With milliseconds, for lines of a log."""
    moment = datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")
    return moment.removesuffix("+00:00") + "Z"


def parse_when(text: str | None, now: datetime | None = None) -> str | None:
    """Adds what the service needs and people omit: `03:12` is the last time that a clock here showed that, and a time
    without a zone is in the zone of this machine. Anything else is left to the service.
    """
    if text is None:
        return None
    now = now or datetime.now().astimezone()
    if found := _CLOCK.fullmatch(text):
        if int(found["hour"]) > 23:
            return text
        moment = now.replace(
            hour=int(found["hour"]), minute=int(found["minute"]), second=int(found["second"] or 0), microsecond=0
        )
        return (moment - timedelta(days=1) if moment > now else moment).isoformat()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if text.isdecimal() or moment.tzinfo is not None:
        return text
    return moment.replace(tzinfo=now.tzinfo).isoformat()


def terminal_width() -> int | None:
    """None in a pipe, where a line may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def cell_width(text: str) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 see output._plain_table

    return cell_len(text)


def count_and_names(names: Sequence[str], room: int | None) -> str:
    """`3: a, b, c`, or `120: a, b, …` when the room of `room` cells ends. None: no limit."""
    if not names:
        return "0"
    text = f"{len(names)}: {names[0]}"
    for at, name in enumerate(names[1:], 2):
        longer = f"{text}, {name}"
        if room is not None and cell_width(printable(longer)) + (0 if at == len(names) else 3) > room:
            return f"{text}, …"
        text = longer
    return text


def fit_columns(
    header: Sequence[str], rows: Iterable[Sequence[Any]], optional: Sequence[str], width: int | None
) -> tuple[list[str], list[list[Any]]]:
    """Leaves out optional columns, the first one first, until a row fits into the width."""
    table = [list(row) for row in rows]
    kept = list(range(len(header)))
    if width is None:
        return list(header), table
    widths = [max([cell_width(header[at]), *(_cell_width(row[at]) for row in table)]) for at in kept]
    for name in optional:
        if sum(widths[at] for at in kept) + _COLUMN_GAP * (len(kept) - 1) <= width:
            break
        kept.remove(header.index(name))
    return [header[at] for at in kept], [[row[at] for at in kept] for row in table]


def _cell_width(value: object) -> int:
    if value is None:
        return 1
    if isinstance(value, bool):
        return 3
    return cell_width(printable(str(value)))
