"""Which snapshots are checked, and which are built."""

from pathlib import Path

import pytest

from routebook_pipeline.lake.snapshots import build_days, closed_days, days_from_to, start_ms
from routebook_pipeline.lake.tables import OBSERVED, Lake, PinnedTable, Table
from tests.pipeline.lake.logs import NO_SPARK, write_log

DAYS = days_from_to("2023-01-01", "2024-02-04")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables that were opened."""
    names: list[str] = []
    pin, create = Table.pin, Table.create

    def pinned(table: Table) -> PinnedTable:
        names.append(table.name)
        return pin(table)

    def created(table: Table) -> None:
        names.append(f"{table.name}, created")
        create(table)

    monkeypatch.setattr(Table, "pin", pinned)
    monkeypatch.setattr(Table, "create", created)
    return names


def test_checking_many_days_opens_each_table_once(tmp_path: Path, opened: list[str]) -> None:
    lake = Lake(str(tmp_path), "ns")
    write_log(lake.changes, DAYS, changes=len(DAYS), **{OBSERVED: start_ms(DAYS[-1]) + 1})
    records = {f"snapshots/{day}{end}": number for day in DAYS for end, number in (("", len(DAYS)), ("/raw", 0))}
    write_log(lake.snapshots, DAYS[1:], **records)
    assert closed_days(lake) == DAYS[1:]
    opened.clear()
    # The lake has nothing before the first day, and has not reached the day after the last one.
    assert build_days(NO_SPARK, lake, ["2022-12-31", *DAYS, "2024-02-05"]) == []
    assert opened == ["changes", "snapshots"]
