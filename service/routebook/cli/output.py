"""Output for people: tables, name-value lists, one line of progress; ages, times and lists of names that fit.

On a terminal, tables wrap at its width and use colours. In a pipe they are plain text, one row a line, with all of
everything.
"""

import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import click

from routebook.model.broker import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from rich.status import Status
    from rich.table import Table


_PIPE_WIDTH: Final = 1_000_000
"""Rich fits everything into a width; a line in a pipe has no end."""

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, and those that change the direction of text. A line feed and a tab stay."""


def printable(text: str) -> str:
    """Escapes what could control a terminal. Names in the store come from peers: one with an escape sequence could
    otherwise clear the screen, or show another name than it is.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON for people and programs: readable characters stay, those that could control a terminal become escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, has_header: bool = True, err: bool = False
) -> None:
    """Aligns numbers right and text left; the header is bold on a terminal."""
    texts = [[_text(cell) for cell in row] for row in rows]
    if not texts:
        click.echo("(none)", err=True)
        return
    table = _plain_table()
    table.show_header = has_header
    for at, name in enumerate(header):
        is_numeric = all(_is_number(row[at]) for row in texts)
        table.add_column(name.upper(), justify="right" if is_numeric else "left", overflow="fold")
    for row in texts:
        table.add_row(*row)
    _print(table, err=err)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """One line for each field: its name and its value."""
    table = _plain_table()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, _text(value))
    _print(table)


def print_findings(findings: Iterable[tuple[str, str, str, str, str]]) -> None:
    """One row for each finding, its advice below: mark, colour of the mark, subject, message, advice."""
    from rich.text import Text  # noqa: PLC0415 see _plain_table

    table = _plain_table()
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for mark, colour, subject, message, advice in findings:
        table.add_row(Text(mark, style=colour), subject, message)
        if advice:
            table.add_row("", "", f"-> {advice}")
    _print(table)


def _plain_table() -> "Table":
    """Columns two blanks apart, without lines."""
    # Commands that print JSON or one sentence need not wait for this import.
    from rich.table import Table  # noqa: PLC0415

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, header_style="bold")


def _print(table: "Table", *, err: bool = False) -> None:
    from rich.console import Console  # noqa: PLC0415 see _plain_table

    if (sys.stderr if err else sys.stdout).isatty():
        Console(highlight=False, markup=False, emoji=False, stderr=err).print(table)
        return
    plain = io.StringIO()
    Console(file=plain, width=_PIPE_WIDTH, highlight=False, markup=False, emoji=False).print(table)
    click.echo("\n".join(line.rstrip() for line in plain.getvalue().splitlines()), err=err)


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "-"
    return printable(str(value)).replace("\n", "\\n").replace("\t", "\\t")


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdigit()


class ProgressLine:
    """The progress of a long run, as one line on a terminal's stderr. Writes nothing to logs and pipes."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._parts: dict[str, str] = {}
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def show_routes(self, address: str, done: int, total: int) -> None:
        self.show(f"{address}:", f"{done} of {total} routes")

    def show(self, part: str, progress: str) -> None:
        if not self._is_shown:
            return
        self._parts[part] = progress
        text = "; ".join(f"{name} {value}" for name, value in self._parts.items())
        if self._status is None:
            from rich.console import Console  # noqa: PLC0415 see _plain_table

            self._status = Console(stderr=True, highlight=False, markup=False).status(text)
            self._status.start()
        else:
            self._status.update(text)


# -- values: ages, times, lists of names and columns that fit the terminal


_CLOCK: Final = re.compile(r"(?P<hour>[0-2]?\d):(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d))?")
_COLUMN_GAP: Final = 2


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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


def permission_letters(perm: int) -> str:
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")
