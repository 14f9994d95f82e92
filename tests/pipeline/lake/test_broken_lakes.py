"""A damaged or missing lake is reported in one sentence, with exit code 3; no file that it refers to is removed."""

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


def test_a_corrupt_log_is_reported_on_one_line(lake: Lake) -> None:
    for entry in log_of(lake.changes).glob("*.json"):
        entry.write_text("garbage")
    with pytest.raises(UnreachableError, match=r"The table 'changes' at .* cannot be opened: .*Json") as raised:
        lake.changes.pin()
    assert "\n" not in str(raised.value)
    assert "<unknown>" not in str(raised.value), "the stack trace of deltalake"
    with pytest.raises(UnreachableError, match="cannot be created"):
        lake.changes.create()


def test_a_log_that_was_deleted_is_reported(lake: Lake) -> None:
    pinned = lake.changes.pin()
    shutil.rmtree(log_of(lake.changes))
    with pytest.raises(UnreachableError, match="cannot be written to"):
        commit_files(pinned, [], records={"changes": Position(0, 1).ord})


def test_a_folder_that_cannot_exist_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UnreachableError, match=r"'changes' at .*file/ns/changes cannot be created"):
        Lake(str(tmp_path / "file"), "ns").changes.create()
    writer = Folder(f"{tmp_path}/file").writer("a/b.parquet", pyarrow.schema([]))
    with pytest.raises(UnreachableError, match=r"cannot be written to.*this process may"), writer:
        pytest.fail("there is no such folder")


def test_processes_that_create_a_table_at_once_all_succeed(tmp_path: Path) -> None:
    """Several processes of a newer release add the same new columns."""
    failed: list[BaseException] = []
    for number in range(5):
        folder = Folder(f"{tmp_path}/{number}")
        Table("ns", folder, "table", columns((LongType(), "ord ms"))).create()
        newer = Table("ns", folder, "table", columns((LongType(), "ord ms added and_this")))
        barrier = threading.Barrier(4)

        def create(table: Table = newer, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                table.create()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {field.name for field in DeltaTable(folder.uri).schema().fields} == {*newer.columns.names, "day"}
    assert failed == []


def test_committed_files_stay_when_their_writer_fails_afterwards(lake: Lake) -> None:
    """After Ctrl-C right after the commit, or when the answer of an object store is lost."""
    table = lake.changes
    for numbers in (range(20), range(20, 40)):
        add_file(table, numbers)

    def join(failure: BaseException, *, committed: bool) -> WriteAttempt:
        pinned = table.pin()
        with suppress(type(failure)), write_attempt(table) as attempt:
            attempt.join(pinned.files, table.columns)
            if committed:
                commit_files(pinned, attempt.added, records={}, removed=pinned.files, same_rows=True)
            raise failure
        return attempt

    for error in (KeyboardInterrupt(), ConcurrentCommitError("our own commit")):
        kept = join(error, committed=True)
        assert [action.path for action in kept.added] == [file.path for file in table.pin().files]
        assert ords(table) == list(range(40))
        files = paths(table)
        join(error, committed=False)
        assert paths(table) == files


def test_joining_names_a_file_that_is_missing(lake: Lake) -> None:
    table = lake.changes
    gone, _ = (add_file(table, numbers) for numbers in (range(20), range(20, 40)))
    Path(table.folder.uri, gone).unlink()
    files = paths(table)
    with pytest.raises(UnreachableError, match=f"A file of the table is missing: .*{gone}"):
        maintenance.compact_table(table)
    assert paths(table) == files
