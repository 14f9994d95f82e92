"""Output for people: tables, name-value lists, one line of progress.

On a terminal, tables wrap at its width and use colours. In a pipe they are plain text, one row a line.
"""

import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import click

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
