"""An answer as a table, JSON, CSV or Parquet, each with what it rests on."""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from routebook_pipeline.answers.answering import Row
from routebook_pipeline.answers.files import write_parquet
from routebook_pipeline.answers.statement import integrity_line, window_line
from routebook_pipeline.answers.taken import Taken
from routebook_pipeline.cli.outlet import file_for
from routebook_pipeline.cli.tables import print_rows
from routebook_pipeline.times import iso

TABLE: Final = "table"
JSON: Final = "json"
CSV: Final = "csv"


def give(taken: Taken, form: str, parquet: str | None) -> None:
    if parquet is not None:
        _write_parquet(taken, parquet)
        click.echo(f"{taken.table.num_rows} rows in {parquet}", err=True)
        _give_statement(taken, err=True)
        return
    _FORMS[form](taken)


def _write_parquet(taken: Taken, out: str) -> None:
    if "://" in out:
        # An object appears when it is whole.
        write_parquet(taken.table, taken.statement(), out)
        return
    with file_for(out, "--parquet") as fresh:
        write_parquet(taken.table, taken.statement(), str(fresh))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _give_json(taken: Taken) -> None:
    print_json({**taken.statement(), "rows": taken.rows})


def _give_csv(taken: Taken) -> None:
    """Maps and lists as JSON in their cell; what it rests on goes to standard error, for a comment is no CSV."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(taken.answer.shape.names)
    for row in taken.rows:
        lines.writerow(_csv_cells(row, taken.answer.shape.names))
    sys.stdout.flush()
    _give_statement(taken, err=True)


def _csv_cells(row: Row, names: Sequence[str]) -> list[Any]:
    return [
        json.dumps(row[name], ensure_ascii=False) if isinstance(row[name], dict | list | bool) else row[name]
        for name in names
    ]


def _give_table(taken: Taken) -> None:
    print_rows(taken.answer.shape.names, taken.rows)
    click.echo()
    _give_statement(taken, err=False)


def _give_statement(taken: Taken, *, err: bool) -> None:
    basis = taken.answer.basis
    settled, reach, window = basis.settled, basis.reach, basis.settled.window
    click.echo(
        window_line(window.start_ms, window.end_ms, reach.complete_until_ms, settled.asked_until_ms)
        + (f", evidence since {iso(basis.since_ms)}" if basis.since_ms > window.start_ms else ""),
        err=err,
    )
    click.secho(integrity_line(taken.integrity), fg=None if taken.is_ok else "red", err=err)
    if reach.store:
        click.echo(reach.store, err=err)


_FORMS: Final[dict[str, Callable[[Taken], None]]] = {TABLE: _give_table, JSON: _give_json, CSV: _give_csv}
