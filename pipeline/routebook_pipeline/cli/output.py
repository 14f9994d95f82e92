"""`--out FILE`: what a command makes, as a file; for those that answer on standard output, the answer.

The latter for `spark-submit`, which pours both outputs of a Python program into one.

Answers as tables for people: times as times, durations with units, shares in percent.

An answer as a table, JSON, CSV or Parquet, each with what it rests on.
"""

import csv
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from routebook_pipeline.answers.coverage import integrity_line, window_line
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.local_files import replace_atomically
from routebook_pipeline.times import human_duration, iso

if TYPE_CHECKING:
    from routebook_pipeline.answers.computation import ComputedAnswer

out_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--out", default=None, metavar="FILE", help="Write the answer there, and not on standard output."
)


@contextmanager
def answers_into(out: str | None) -> Iterator[None]:
    if out is None:
        yield
        return
    with file_for(out) as fresh, fresh.open("w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield


@contextmanager
def file_for(out: str, flag: str = "--out") -> Iterator[Path]:
    """Where to write it; see `replace_atomically`."""
    try:
        with replace_atomically(Path(out)) as fresh:
            yield fresh
    except OSError as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another place with {flag}.") from error


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
        return human_duration(value)
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


TABLE: Final = "table"
JSON: Final = "json"
CSV: Final = "csv"


def give(taken: "ComputedAnswer", form: str, parquet: str | None) -> None:
    if parquet is not None:
        _write_parquet(taken, parquet)
        click.echo(f"{taken.table.num_rows} rows in {parquet}", err=True)
        _give_statement(taken, err=True)
        return
    _FORMS[form](taken)


def _write_parquet(taken: "ComputedAnswer", out: str) -> None:
    from routebook_pipeline.answers.computation import write_parquet

    if "://" in out:
        # An object appears when it is whole.
        write_parquet(taken.table, taken.metadata(), out)
        return
    with file_for(out, "--parquet") as fresh:
        write_parquet(taken.table, taken.metadata(), str(fresh))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _give_json(taken: "ComputedAnswer") -> None:
    print_json({**taken.metadata(), "rows": taken.rows})


def _give_csv(taken: "ComputedAnswer") -> None:
    """Maps and lists as JSON in their cell; what it rests on goes to standard error, for a comment is no CSV."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(taken.answer.schema.names)
    for row in taken.rows:
        lines.writerow(_csv_cells(row, taken.answer.schema.names))
    sys.stdout.flush()
    _give_statement(taken, err=True)


def _csv_cells(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    return [
        json.dumps(row[name], ensure_ascii=False) if isinstance(row[name], dict | list | bool) else row[name]
        for name in names
    ]


def _give_table(taken: "ComputedAnswer") -> None:
    print_rows(taken.answer.schema.names, taken.rows)
    click.echo()
    _give_statement(taken, err=False)


def _give_statement(taken: "ComputedAnswer", *, err: bool) -> None:
    context = taken.answer.context
    resolved, extent, window = context.resolved, context.extent, context.resolved.window
    click.echo(
        window_line(window.start_ms, window.end_ms, extent.complete_until_ms, resolved.asked_until_ms)
        + (f", evidence since {iso(context.since_ms)}" if context.since_ms > window.start_ms else ""),
        err=err,
    )
    click.secho(integrity_line(taken.integrity), fg=None if taken.is_ok else "red", err=err)
    if extent.store_problem:
        click.echo(extent.store_problem, err=err)


_FORMS: Final[dict[str, Callable[["ComputedAnswer"], None]]] = {TABLE: _give_table, JSON: _give_json, CSV: _give_csv}
