"""A lake that is ill or gone is said in a sentence, with exit code 3; and nothing that it refers to is removed."""

import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake import maintenance
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.tables import Lake, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, WriteAttempt, commit_files, write_attempt
from routebook_pipeline.schemas import columns
from tests.pipeline.lake.arrow_files import add_file, ords
from tests.pipeline.lake.streams import paths


def log_of(table: Table) -> Path:
    return Path(table.folder.uri, "_delta_log")


def test_a_spoilt_log_is_named_on_one_line(lake: Lake) -> None:
    for entry in log_of(lake.changes).glob("*.json"):
        entry.write_text("garbage")
    with pytest.raises(UnreachableError, match=r"The table 'changes' at .* cannot be opened: .*Json") as raised:
        lake.changes.pin()
    assert "\n" not in str(raised.value)
    assert "<unknown>" not in str(raised.value), "where in the wheel's code it was"
    with pytest.raises(UnreachableError, match="cannot be made"):
        lake.changes.make()


def test_a_log_that_went_away_is_named(lake: Lake) -> None:
    pinned = lake.changes.pin()
    shutil.rmtree(log_of(lake.changes))
    with pytest.raises(UnreachableError, match="cannot be written to"):
        commit_files(pinned, [], records={"changes": Position(0, 1).ord})


def test_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UnreachableError, match=r"'changes' at .*file/ns/changes cannot be made"):
        Lake(str(tmp_path / "file"), "ns").changes.make()
    writer = Folder(f"{tmp_path}/file").writer("a/b.parquet", pyarrow.schema([]))
    with pytest.raises(UnreachableError, match=r"cannot be written to.*may this process"), writer:
        pytest.fail("there is no such place")


def test_who_makes_a_table_at_the_same_time_finds_it_made(tmp_path: Path) -> None:
    """A newer release, started several times: all of them add the columns that are new."""
    failed: list[BaseException] = []
    for number in range(5):
        folder = Folder(f"{tmp_path}/{number}")
        Table("ns", folder, "table", columns((LongType(), "ord ms"))).make()
        newer = Table("ns", folder, "table", columns((LongType(), "ord ms added and_this")))
        begin = threading.Barrier(4)

        def make(table: Table = newer, begin: threading.Barrier = begin) -> None:
            begin.wait()
            try:
                table.make()
            except Exception as error:
                failed.append(error)

        makers = [threading.Thread(target=make) for _ in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert {field.name for field in DeltaTable(folder.uri).schema().fields} == {*newer.columns.names, "day"}
    assert failed == []


def test_what_was_committed_stays_however_its_writer_ended(lake: Lake) -> None:
    """Ctrl-C right behind the commit, or an object store whose answer was lost."""
    table = lake.changes
    for numbers in (range(20), range(20, 40)):
        add_file(table, numbers)

    def join(ended_with: BaseException, *, committed: bool) -> WriteAttempt:
        pinned = table.pin()
        with suppress(type(ended_with)), write_attempt(table) as made:
            made.join(pinned.files, table.columns)
            if committed:
                commit_files(pinned, made.added, records={}, removed=pinned.files, same_rows=True)
            raise ended_with
        return made

    for error in (KeyboardInterrupt(), ConcurrentCommitError("by ourselves")):
        kept = join(error, committed=True)
        assert [action.path for action in kept.added] == [file.path for file in table.pin().files]
        assert ords(table) == list(range(40))
        files = paths(table)
        join(error, committed=False)
        assert paths(table) == files


def test_files_that_are_gone_are_named_when_they_are_to_be_joined(lake: Lake) -> None:
    table = lake.changes
    gone, _ = (add_file(table, numbers) for numbers in (range(20), range(20, 40)))
    Path(table.folder.uri, gone).unlink()
    files = paths(table)
    with pytest.raises(UnreachableError, match=f"A file of the table is missing: .*{gone}"):
        maintenance.compact_table(table)
    assert paths(table) == files
