"""Answers as tables for people: times as times, durations with units, shares in percent."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from routebook_pipeline.times import iso, length

_INSTANTS: Final = frozenset(
    {"ms", "since_ms", "at_ms", "from_ms", "to_ms", "first_ms", "last_ms", "complete_until_ms"}
)
_SHARES: Final = frozenset(
    {"availability", "availability_all", "worst_availability", "objective", "readable", "late_share", "top_share"}
)
_WORDS: Final = {None: "-", True: "yes", False: "no"}
_GAP: Final = "  "


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Numbers to the right. A column without any value is left out: most answers are wide."""
    if not rows:
        click.echo("(no rows)")
        return
    filled = [name for name in columns if any(row[name] not in (None, [], {}) for row in rows)]
    cells = [[cell(name, row[name]) for name in filled] for row in rows]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in filled]
    titles = ["AT" if name == "ms" else name.removesuffix("_ms").replace("_", " ").upper() for name in filled]
    widths = [max(_width(text) for text in column) for column in zip(titles, *cells, strict=True)]
    click.secho(_line(titles, widths, right), bold=True)
    for row in cells:
        click.echo(_line(row, widths, right))


def cell(name: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return _WORDS[value]
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return ", ".join(cell(name, inner) for inner in value) or "-"
    return str(value)


def _number(name: str, value: float) -> str:
    if name in _INSTANTS:
        return iso(int(value)).replace(".000Z", "Z")
    if name.endswith("_ms"):
        return length(value)
    if isinstance(value, int):
        return str(value)
    return f"{100 * value:.4f} %" if name in _SHARES else f"{value:.4g}"


def _mapping(value: Mapping[Any, Any]) -> str:
    if {"version", "kind"} <= set(value):
        return f"{value['version']} {value['kind']}" + (f" ({value['cause']})" if value.get("cause") else "")
    if {"from_version", "to_version"} == set(value):
        return f"{value['from_version']}-{value['to_version']}"
    return " ".join(f"{key}={cell(str(key), inner)}" for key, inner in sorted(value.items())) or "-"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for text, width, to_the_right in zip(cells, widths, right, strict=True):
        space = " " * (width - _width(text))
        padded.append(space + text if to_the_right else text + space)
    return _GAP.join(padded).rstrip()


def _width(text: str) -> int:
    """Columns on a terminal: letters of Chinese and the like take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)
