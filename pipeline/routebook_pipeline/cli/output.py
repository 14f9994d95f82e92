"""Prints answers as a table, JSON or CSV, or writes them to a file, each with the state of the history behind it."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from routebook_pipeline.answers.coverage import integrity_line, window_line
from routebook_pipeline.cli.options import Decorator
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.local_files import replace_atomically
from routebook_pipeline.times import human_duration, iso

if TYPE_CHECKING:
    from routebook_pipeline.answers.computation import ComputedAnswer

TABLE: Final = "table"
JSON: Final = "json"
CSV: Final = "csv"

out_option: Final[Decorator] = click.option(
    "--out", default=None, metavar="FILE", help="Write the answer to this file instead of standard output."
)


@contextmanager
def answer_output(out: str | None) -> Iterator[None]:
    """Redirects the answer to the file `out`, if one is named. `spark-submit` needs this: it mixes standard output with
    everything else that a program prints.
    """
    if out is None:
        yield
        return
    with output_file(out) as temporary, temporary.open("w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield


@contextmanager
def output_file(out: str, flag: str = "--out") -> Iterator[Path]:
    """The path to write to; see `replace_atomically`."""
    try:
        with replace_atomically(Path(out)) as temporary:
            yield temporary
    except OSError as error:
        raise UnreachableError(f"{out} cannot be written: {error}. Name another file with {flag}.") from error


def print_answer(computed: "ComputedAnswer", form: str, parquet: str | None) -> None:
    """`form`: TABLE, JSON or CSV. With `parquet`, the rows go to that file instead."""
    if parquet is not None:
        _write_parquet(computed, parquet)
        click.echo(f"{computed.table.num_rows} rows in {parquet}", err=True)
        _print_coverage(computed, err=True)
        return
    _PRINTERS[form](computed)


def _write_parquet(computed: "ComputedAnswer", out: str) -> None:
    from routebook_pipeline.answers.computation import write_parquet

    if "://" in out:
        # Object stores show an object only when it is complete.
        write_parquet(computed.table, computed.metadata(), out)
        return
    with output_file(out, "--parquet") as temporary:
        write_parquet(computed.table, computed.metadata(), str(temporary))


def print_json(value: Any) -> None:
    """Readable characters stay as they are. Those that could control a terminal become escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo("\n".join(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n")))


def _print_json_answer(computed: "ComputedAnswer") -> None:
    print_json({**computed.metadata(), "rows": computed.rows})


def _print_csv_answer(computed: "ComputedAnswer") -> None:
    """Maps and lists become JSON in their cell. Everything but the rows goes to standard error: CSV has no comments."""
    names = computed.answer.schema.names
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in computed.rows:
        writer.writerow(_csv_cells(row, names))
    sys.stdout.flush()
    _print_coverage(computed, err=True)


def _csv_cells(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    return [
        json.dumps(row[name], ensure_ascii=False) if isinstance(row[name], dict | list | bool) else row[name]
        for name in names
    ]


def _print_table_answer(computed: "ComputedAnswer") -> None:
    print_rows(computed.answer.schema.names, computed.rows)
    click.echo()
    _print_coverage(computed, err=False)


def _print_coverage(computed: "ComputedAnswer", *, err: bool) -> None:
    """Which time the answer covers, and whether the history is whole."""
    context = computed.answer.context
    resolved, extent, window = context.resolved, context.extent, context.resolved.window
    click.echo(
        window_line(window.start_ms, window.end_ms, extent.complete_until_ms, resolved.asked_until_ms)
        + (f", evidence since {iso(context.since_ms)}" if context.since_ms > window.start_ms else ""),
        err=err,
    )
    click.secho(integrity_line(computed.integrity), fg=None if computed.is_ok else "red", err=err)
    if extent.store_problem:
        click.echo(extent.store_problem, err=err)


_PRINTERS: Final[dict[str, Callable[["ComputedAnswer"], None]]] = {
    TABLE: _print_table_answer,
    JSON: _print_json_answer,
    CSV: _print_csv_answer,
}

_INSTANTS: Final = frozenset(
    {"ms", "since_ms", "at_ms", "from_ms", "to_ms", "first_ms", "last_ms", "complete_until_ms"}
)
_PERMISSIONS: Final = frozenset({"perm", "perm_before", "perm_after"})
_SHARES: Final = frozenset(
    {"availability", "availability_all", "worst_availability", "objective", "readable", "late_share", "top_share"}
)
_IN_MS: Final = frozenset({"headless", "two-masters", "slow-detection", "read-only"})
_IN_PERCENT: Final = frozenset({"mass-loss", "late-heartbeats"})
"""Rules of anomalies by the unit of their value and threshold; those of other rules are plain numbers."""
MAX_VERSIONS: Final = 5
"""The most versions that a cell shows. `--json` has all of them."""
_WORDS: Final = {None: "-", True: "yes", False: "no"}
GAP: Final = 2
"""Spaces between columns."""
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, and those that change the direction of text."""


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table for people: times as text, durations with units, shares in percent. Columns without any value are left
    out, because most answers have many.
    """
    if not rows:
        click.echo("(no rows)")
        return
    filled = [name for name in columns if any(row[name] not in (None, [], {}) for row in rows)]
    titles = [_title(name, filled) for name in filled]
    is_numeric = [all(isinstance(row[name], int | float | None) for row in rows) for name in filled]
    print_table([[_format_in_row(name, row) for name in filled] for row in rows], titles, is_numeric)


def _title(name: str, others: Sequence[str]) -> str:
    """Without `_ms`, since values have units. `readable` is the share of the time `readable_ms`."""
    if name == "ms":
        return "AT"
    title = name.removesuffix("_ms")
    share = " SHARE" if f"{name}_ms" in others else ""
    return title.replace("_", " ").upper() + share


def _format_in_row(name: str, row: Mapping[str, Any]) -> str:
    if name in ("value", "threshold") and row[name] is not None:
        rule = row.get("rule")
        if rule in _IN_MS:
            return human_duration(row[name])
        return f"{100 * row[name]:.1f} %" if rule in _IN_PERCENT else f"{row[name]:.12g}"
    return format_cell(name, row[name])


def print_table(
    lines: Sequence[Sequence[str]],
    titles: Sequence[str] = (),
    is_numeric: Sequence[bool] = (),
    colours: Mapping[str, str] | None = None,
) -> None:
    """On a terminal, long cells wrap at its width. Elsewhere each row is one line, whatever its length.

    `is_numeric`: columns to align right. `colours`: of words in the first column, on a terminal.
    """
    numeric = is_numeric or [False] * len(lines[0])
    if sys.stdout.isatty():
        _print_on_terminal(lines, titles, numeric, colours or {})
    else:
        # Rich takes 0.4 ms for each row, and answers can have a hundred thousand rows. Without wrapping and colours,
        # aligning the columns is all there is to do.
        _print_aligned([titles, *lines] if titles else lines, numeric)


def _print_on_terminal(
    lines: Sequence[Sequence[str]], titles: Sequence[str], numeric: Sequence[bool], colours: Mapping[str, str]
) -> None:
    # Commands that print JSON or one sentence do not wait for these imports.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=bool(titles), header_style="bold")
    for at, is_number in enumerate(numeric):
        title = titles[at] if titles else ""
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for first, *rest in lines:
        table.add_row(Text(first, style=colours.get(first, "")), *map(Text, rest))
    Console().print(table)


def _print_aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.cells import cell_len

    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(numeric))]
    for line in lines:
        padded = []
        for text, width, is_number in zip(line, widths, numeric, strict=True):
            space = " " * (width - cell_len(text))
            padded.append(space + text if is_number else text + space)
        click.echo((" " * GAP).join(padded).rstrip())


def format_cell(name: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return _WORDS[value]
    if isinstance(value, int | float):
        return _format_number(name, value)
    if isinstance(value, Mapping):
        return _format_mapping(value)
    if isinstance(value, list | tuple):
        shown = value[:MAX_VERSIONS] if name == "versions" else value
        more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
        return ", ".join(format_cell(name, inner) for inner in shown) + more or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Escapes what could control a terminal: names come from the peers of the name service."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def format_permission(perm: int) -> str:
    """`rw`, `r-`, `-w` or `--`."""
    return ("r" if perm & 4 else "-") + ("w" if perm & 2 else "-")


def _format_number(name: str, value: float) -> str:
    if name in _PERMISSIONS:
        return format_permission(int(value))
    if name in _INSTANTS:
        return iso(int(value)).replace(".000Z", "Z")
    if name.endswith("_ms"):
        return human_duration(value)
    if isinstance(value, int):
        return str(value)
    return f"{100 * value:.4f} %" if name in _SHARES else f"{value:.4g}"


def _format_mapping(value: Mapping[Any, Any]) -> str:
    if {"version", "kind"} <= set(value):
        return f"{value['version']} {value['kind']}" + (f" ({value['cause']})" if value.get("cause") else "")
    if {"first_ms", "last_ms", "number"} == set(value):
        first, last = (format_cell(name, value[name]) for name in ("first_ms", "last_ms"))
        return f"{value['number']} from {first} to {last}"
    if {"from_version", "to_version"} == set(value):
        return f"{value['from_version']}-{value['to_version']}"
    return (
        " ".join(f"{printable(str(key))}={format_cell(str(key), inner)}" for key, inner in sorted(value.items())) or "-"
    )
