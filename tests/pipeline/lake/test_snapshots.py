"""Which snapshots are looked at, which are made."""

from pathlib import Path

import pytest

from routebook_pipeline.lake.snapshots import build_days, closed_days, names_of_days, start_ms
from routebook_pipeline.lake.tables import OBSERVED, Lake, PinnedTable, Table
from tests.pipeline.lake.logs import NO_SPARK, tell

DAYS = names_of_days("2023-01-01", "2024-02-04")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were, by name."""
    names: list[str] = []
    pin, make = Table.pin, Table.make

    def pinned(table: Table) -> PinnedTable:
        names.append(table.name)
        return pin(table)

    def made(table: Table) -> None:
        names.append(f"{table.name}, made")
        make(table)

    monkeypatch.setattr(Table, "pin", pinned)
    monkeypatch.setattr(Table, "make", made)
    return names


def test_looking_costs_one_opening_of_each_table_however_many_days(tmp_path: Path, opened: list[str]) -> None:
    lake = Lake(str(tmp_path), "ns")
    tell(lake.changes, DAYS, changes=len(DAYS), **{OBSERVED: start_ms(DAYS[-1]) + 1})
    records = {f"snapshots/{day}{end}": number for day in DAYS for end, number in (("", len(DAYS)), ("/raw", 0))}
    tell(lake.snapshots, DAYS[1:], **records)
    assert closed_days(lake) == DAYS[1:]
    opened.clear()
    # The day before the first one was never reached, and the one after the last one is not yet.
    assert build_days(NO_SPARK, lake, ["2022-12-31", *DAYS, "2024-02-05"]) == []
    assert opened == ["changes", "snapshots"]
