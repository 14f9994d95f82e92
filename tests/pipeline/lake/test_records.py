"""All records of a table, from one reading of its log."""

from pathlib import Path

import pytest

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.tables import CHECKPOINT_COMMITS, Lake, PinnedTable, all_records
from routebook_pipeline.lake.transactions import commit_files


def pin(lake: Lake) -> PinnedTable:
    return lake.changes.pin()


def test_they_equal_those_that_deltalake_returns_one_by_one(lake: Lake) -> None:
    """Before the first checkpoint and after it, and at an older version of the table."""
    lake.changes.create()
    assert all_records(pin(lake)) == {}
    commit_files(pin(lake), [], records={"once": 7, "often": -1})
    early = pin(lake)
    assert all_records(early) == {"once": 7, "often": -1}
    for number in range(CHECKPOINT_COMMITS + 3):
        commit_files(pin(lake), [], records={"often": number, f"of {number}": 0})
    late = pin(lake)
    assert len([file for file in (late.table.folder / "_delta_log").files() if "checkpoint.parquet" in file.path]) == 1
    found = all_records(late)
    assert len(found) == 2 + CHECKPOINT_COMMITS + 3
    assert found == {name: late.record(name) for name in found}
    assert (found["once"], found["often"]) == (7, CHECKPOINT_COMMITS + 2)
    assert all_records(early) == {"once": 7, "often": -1}
    # Without this file, only the names of files show the checkpoint, which another writer may have split in parts.
    Path(late.table.folder.uri, "_delta_log", "_last_checkpoint").unlink()
    assert all_records(late) == found


def test_a_log_with_a_gap_is_refused(lake: Lake) -> None:
    lake.changes.create()
    for number in range(2):
        commit_files(pin(lake), [], records={"one": number})
    pinned = pin(lake)
    Path(pinned.table.folder.uri, "_delta_log", "00000000000000000001.json").unlink()
    with pytest.raises(UnreachableError, match="lacks its version 1"):
        all_records(pinned)
