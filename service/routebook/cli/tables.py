"""Tables for people on a terminal."""

import unicodedata
from collections.abc import Iterable, Sequence

import click

_GAP = "  "


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers to the right, text to the left; the header is bold on a terminal."""
    texts = [[_text(cell) for cell in row] for row in rows]
    if not texts:
        click.echo("(none)", err=True)
        return
    numeric = [all(_is_number(row[at]) for row in texts) for at in range(len(header))]
    widths = [max(_width(cell) for cell in column) for column in zip(header, *texts, strict=True)]
    click.secho(_line([name.upper() for name in header], widths, numeric), bold=True)
    for row in texts:
        click.echo(_line(row, widths, numeric))


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Name and value, one a line."""
    pairs = [(name, _text(value)) for name, value in fields]
    width = max((_width(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        click.echo(f"{_pad(name, width)}{_GAP}{text}".rstrip())


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [_pad(cell, width, right=right) for cell, width, right in zip(cells, widths, numeric, strict=True)]
    return _GAP.join(padded).rstrip()


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "-"
    return str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdigit()


def _width(text: str) -> int:
    """Columns on a terminal: letters of Chinese and the like take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def _pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space
