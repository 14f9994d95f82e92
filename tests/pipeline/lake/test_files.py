"""The files of a table, as they are selected from its log without Spark."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import compute

from routebook_pipeline.lake.tables import DataFile, Files, Lake
from tests.pipeline.lake.arrow_files import add_file


def log_of(*files: DataFile) -> pyarrow.Table:
    """The list that `deltalake` gives, in another order."""
    return pyarrow.table(
        {
            "path": [file.path for file in reversed(files)],
            "size_bytes": [file.size for file in reversed(files)],
            "num_records": [file.rows for file in reversed(files)],
            "partition.day": [file.day for file in reversed(files)],
            **{
                f"{bound}.{name}": [getattr(file, f"{field}_{name}") for file in reversed(files)]
                for bound, field in (("min", "first"), ("max", "last"))
                for name in ("ord", "ms")
            },
        }
    )


FILES = (
    DataFile("a", 1, 2, "2026-05-01", 1, 2, 100, 200, None),
    DataFile("b", 1, 3, "2026-05-01", 3, 5, 200, 300, None),
    DataFile("c", 1, 4, "2026-05-02", 6, 9, 250, 400, None),
)


@pytest.fixture
def files() -> Files:
    return Files.from_log(log_of(*FILES), "day")


def test_files_are_sorted_and_counted(files: Files) -> None:
    assert (list(files), len(files), files.paths, files.rows) == (list(FILES), 3, ["a", "b", "c"], 9)
    assert (files[0], files[-1], list(files[1:])) == (FILES[0], FILES[2], list(FILES[1:]))
    assert (files.lowest("first_ms"), files.highest("last_ord")) == (100, 9)
    with pytest.raises(IndexError):
        files[3]


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "paths"),
    [(0, 100, []), (0, 101, ["a"]), (200, 201, ["a", "b"]), (201, 250, ["b"]), (300, 999, ["b", "c"]), (401, 999, [])],
)
def test_a_window_selects_the_files_that_may_have_its_rows(
    files: Files, start_ms: int, end_ms: int, paths: list[str]
) -> None:
    assert files.overlapping(start_ms, end_ms).paths == paths


def test_a_file_without_statistics_may_have_any_row() -> None:
    unknown = DataFile("x", 1, 1, "2026-05-01", None, None, None, None, None)
    files = Files.from_log(log_of(*FILES, unknown), "day")
    assert files.overlapping(0, 1).paths == ["x"]


def test_no_files_have_no_bounds() -> None:
    none = Files.from_log(log_of(*FILES), "day").where(compute.field("day") == "2020-01-01")
    assert (list(none), bool(none), none.rows, none.lowest("first_ms"), none.paths) == ([], False, 0, None, [])


def test_the_log_of_a_real_table_has_these_columns(tmp_path: Path) -> None:
    table = Lake(str(tmp_path / "lake"), "ns").changes
    table.create()
    add_file(table, [1, 2, 3])
    (file,) = table.pin().files
    assert (file.rows, file.first_ord, file.last_ord) == (3, 1, 3)
