"""The content of joined files. Spark is not needed."""

from pathlib import Path

import pyarrow
import pytest

from routebook_pipeline.lake import maintenance, transactions
from routebook_pipeline.lake.maintenance import Compacted
from routebook_pipeline.lake.tables import Lake, Table
from routebook_pipeline.lake.transactions import in_groups
from tests.pipeline.lake.arrow_files import add_file, ords


def sizes(table: Table) -> list[int]:
    return [file.size for file in table.pin().files]


def size_of(table: Table, column: str) -> int:
    footers = [table.folder.footer(file.path) for file in table.pin().files]
    groups = [footer.row_group(at) for footer in footers for at in range(footer.num_row_groups)]
    at = table.columns.names.index(column)
    return sum(group.column(at).total_compressed_size for group in groups)


def test_many_small_files_become_one_with_a_single_row_group(lake: Lake) -> None:
    """Each row group has a page and a footer for every column, however few its rows are."""
    table, parts, rows = lake.changes, 30, 200
    for part in range(parts):
        add_file(table, range(part * rows, (part + 1) * rows))
    before = sum(sizes(table))
    assert maintenance.compact_table(table) == Compacted(parts, 1)
    (joined,) = table.pin().files
    assert table.folder.footer(joined.path).num_row_groups == 1
    assert joined.size == Path(table.folder.uri, joined.path).stat().st_size
    assert joined.size < before / 2
    assert ords(table) == list(range(parts * rows))


def test_large_files_do_not_grow_when_they_are_joined(lake: Lake) -> None:
    """With Arrow's default pages of few rows, each compressed on its own, repeated values take four times the space."""
    table, rows = lake.changes, 100_000
    for part in range(2):
        add_file(table, range(part * rows, (part + 1) * rows))
    files, topics = sum(sizes(table)), size_of(table, "topic")
    assert maintenance.compact_table(table) == Compacted(2, 1)
    assert sum(sizes(table)) < files
    assert size_of(table, "topic") < 1.5 * topics


def test_rows_are_grouped_up_to_a_number_and_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def grouped(*numbers: int) -> list[list[int]]:
        batches = (pyarrow.record_batch({"n": pyarrow.array(range(rows), pyarrow.int64())}) for rows in numbers)
        return [[batch.num_rows for batch in group] for group in in_groups(batches)]

    monkeypatch.setattr(transactions, "MAX_GROUP_ROWS", 100)
    assert grouped() == []
    assert grouped(60, 40, 1, 100, 101, 30) == [[60, 40], [1], [100], [101], [30]]
    monkeypatch.setattr(transactions, "MAX_GROUP_BYTES", 50 * 8)
    assert grouped(20, 20, 20, 60, 5) == [[20, 20], [20], [60], [5]]
