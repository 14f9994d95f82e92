"""Statistics of each day and all days before it, from the log."""

from dataclasses import asdict, fields

import pyarrow

from routebook_pipeline.lake.snapshots import CumulativeStats
from routebook_pipeline.lake.tables import DataFile, Files


def file_of(day: str, last_ord: int, rows: int = 10, readable_rows: int | None = 10) -> DataFile:
    return DataFile(f"{day}/{last_ord}", 1, rows, day, 1, last_ord, 0, 0, readable_rows)


def stats_of(*files: DataFile) -> CumulativeStats:
    texts = {"path", "day"}
    kinds = [(field.name, pyarrow.string() if field.name in texts else pyarrow.int64()) for field in fields(DataFile)]
    rows = [asdict(file) for file in files]
    return CumulativeStats(Files(pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(kinds))))


def test_the_statistics_of_a_day_include_all_days_before() -> None:
    stats = stats_of(file_of("2026-05-03", 30), file_of("2026-05-01", 10, readable_rows=8), file_of("2026-05-01", 35))
    days = ("2026-04-30", "2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04")
    assert [stats.newest(day) for day in days] == [0, 35, 35, 35, 35]
    assert [stats.raw(day) for day in days] == [0, 2, 2, 2, 2]


def test_without_a_count_all_rows_are_taken_for_raw() -> None:
    assert stats_of(file_of("2026-05-01", 1, rows=4, readable_rows=None)).raw("2026-05-01") == 4
