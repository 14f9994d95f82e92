"""What lies in the days up to one, as the log has it."""

from routebook_pipeline.lake.snapshots import SoFar
from routebook_pipeline.lake.tables import DataFile


def file_of(day: str, last_ord: int, rows: int = 10, without_raw: int | None = 10) -> DataFile:
    return DataFile(f"{day}/{last_ord}", 1, rows, day, 1, last_ord, 0, 0, without_raw)


def test_a_day_rests_on_itself_and_all_days_before() -> None:
    files = [file_of("2026-05-03", 30), file_of("2026-05-01", 10, without_raw=8), file_of("2026-05-01", 35)]
    so_far = SoFar(files)
    days = ("2026-04-30", "2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04")
    assert [so_far.newest(day) for day in days] == [0, 35, 35, 35, 35]
    assert [so_far.raw(day) for day in days] == [0, 2, 2, 2, 2]


def test_rows_that_nobody_counted_may_all_be_raw() -> None:
    assert SoFar([file_of("2026-05-01", 1, rows=4, without_raw=None)]).raw("2026-05-01") == 4
