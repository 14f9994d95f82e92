"""Maintenance of a lake: no row is lost, none is doubled."""

import base64
import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

from routebook_pipeline.errors import HistoryError, NegativeAnswerError, WrongUsageError
from routebook_pipeline.lake import maintenance
from routebook_pipeline.lake.commit import KillPoint, commit
from routebook_pipeline.lake.file_import import import_files
from routebook_pipeline.lake.maintenance import Compacted, check, compact, vacuum
from routebook_pipeline.lake.rebase import rebase
from routebook_pipeline.lake.reparse import reparse
from routebook_pipeline.lake.snapshots import build
from routebook_pipeline.lake.tables import CHECKPOINT_COMMITS, LAST_MS, Lake, Position, Table
from routebook_pipeline.lake.transactions import commit_files
from routebook_pipeline.schemas import columns
from tests.pipeline.lake.arrow_files import add_file, ords
from tests.pipeline.lake.stores import Store
from tests.pipeline.lake.streams import DAY_MS, START_MS, entries, frame, hole, paths, payload, versions

HOUR_MS = 3_600_000


def fill(spark: SparkSession, lake: Lake, *, step_ms: int = HOUR_MS) -> None:
    """Two batches over two days, with several files for each day."""
    for first, last in ((1, 20), (21, 40)):
        commit(frame(spark, entries(first, last, step_ms=step_ms)).repartition(2), lake.changes, ingested_ms=5)


def test_files_of_closed_days_are_joined(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.changes
    fill(spark, lake)
    stale = table.pin()
    done: list[Compacted] = []

    def join(point: KillPoint) -> None:
        """Between the files of a batch and its commit."""
        if point is KillPoint.FILES_WRITTEN:
            done.append(compact(lake))

    commit(frame(spark, entries(41, 42, step_ms=HOUR_MS)), table, ingested_ms=5, reached=join)
    assert [each.into for each in done] == [1], "the commit was repeated, or nothing was joined"
    files = [file for file in table.pin().files if file.day == "2023-12-09"]
    assert [(file.rows, file.first_ord, file.last_ord) for file in files] == [(23, 1, 23)]

    # Another process read the table before that. `deltalake` would join the same files a second time.
    pins = iter([stale])
    monkeypatch.setattr(Table, "pin", lambda self, pin=Table.pin: next(pins, None) or pin(self))
    assert maintenance.compact_table(table) == Compacted(0, 0)
    monkeypatch.undo()
    assert versions(spark, table) == [(n, n) for n in range(1, 43)]


def test_unreferenced_files_are_deleted_after_a_week(lake: Lake) -> None:
    """Files that a running question may still read are kept."""
    table = lake.changes
    joined = {add_file(table, numbers) for numbers in (range(20), range(20, 40))}
    assert compact(lake) == Compacted(2, 1)
    assert vacuum(lake) == 0
    orphan = Path(table.folder.uri, "data", "left", "day=2023-12-09", "part-0.parquet")
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"file of a killed writer")
    os.utime(orphan, (1, 1))
    assert vacuum(lake) == 1
    assert not orphan.exists()
    assert joined < paths(table)
    assert vacuum(lake, kept_hours=0) == len(joined)
    assert paths(table) == {file.path for file in table.pin().files}
    assert ords(table) == list(range(40))


def test_replaced_answers_are_deleted_too(lake: Lake) -> None:
    """An ingest with `--refresh` computes them again all day."""
    table = lake.answers("flaps-by-seat", columns((LongType(), "ord flaps")))
    table.create()
    for number in range(3):
        add_file(table, [number], replacing=True)
    logged: list[str] = []
    assert vacuum(lake, log=logged.append) == 0
    assert logged == []
    assert vacuum(lake, kept_hours=0, log=logged.append) == 2
    assert "answers/flaps-by-seat: 2 files deleted" in logged
    assert paths(table) == {file.path for file in table.pin().files}
    assert ords(table) == [2]


def test_the_log_gets_a_checkpoint_regularly(lake: Lake) -> None:
    assert lake.changes.pin().delta.metadata().configuration["delta.checkpointInterval"] == str(CHECKPOINT_COMMITS)


@pytest.mark.slow
def test_raw_rows_are_parsed_again(spark: SparkSession, lake: Lake) -> None:
    """Like after an update of the pipeline: two entries of a newer format, and one that stays corrupt."""
    table = lake.changes
    newer = [(f"{START_MS + n * HOUR_MS}-{n}", payload(n, v=2, queues=[])) for n in (3, 30)]
    queue = {"t": "T", "r": 1, "w": 1, "p": 6, "f": 0}
    newer[0] = (newer[0][0], payload(3, v=2, queues=[queue]))
    rows = [*entries(1, 2, step_ms=HOUR_MS), newer[0], (f"{START_MS + 4 * HOUR_MS}-4", b"corrupt")]
    commit(frame(spark, rows), table, ingested_ms=5)
    commit(frame(spark, [*entries(5, 29, step_ms=HOUR_MS), newer[1]]), table, ingested_ms=6)
    assert build(spark, lake, "2023-12-10")

    persisted = spark.sparkContext._jsc.getPersistentRDDs().size()
    done = reparse(spark, lake, known_format=2)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == persisted, "rows are still held in memory"
    assert (done.raw, done.readable, done.first_ms) == (3, 2, START_MS + 3 * HOUR_MS)
    assert done.dropped_snapshots == ("2023-12-10",)
    assert len(lake.snapshots.pin().files) == 0
    found = {
        (row.version, row.row): (row.code, row.topic, row.ingested_ms, row.raw)
        for row in table.pin().read(spark).collect()
    }
    assert len(found) == 31
    assert found[3, 0] == (11, None, 5, None)
    assert found[3, 1] == (11, "T", 5, None)
    assert found[30, 0] == (11, None, 6, None)
    assert found[4, 0] == (99, None, 5, base64.b64encode(b"corrupt").decode())
    assert table.pin().position == Position(0, 30)


@pytest.mark.slow
def test_exported_files_are_committed_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    def export(name: str, first: int, last: int) -> str:
        lines = [json.dumps({"id": entry_id, "d": text.decode()}) for entry_id, text in entries(first, last)]
        file = tmp_path / name
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    files = [export("second [2].jsonl", 8, 20), export("first.jsonl", 1, 10)]
    done = import_files(spark, lake, files)
    assert done is not None
    assert (done.first, done.last, done.entries) == (1, 20, 20)
    assert import_files(spark, lake, files) is None
    with pytest.raises(HistoryError, match=r"up to version 20.*between 25 and 30"):
        import_files(spark, lake, [export("later.jsonl", 25, 30)])
    corrupt = tmp_path / "corrupt.jsonl"
    corrupt.write_text('{"id":"7","d":"{}"}\nno line\n')
    with pytest.raises(WrongUsageError, match=r"corrupt\.jsonl has a line"):
        import_files(spark, lake, [str(corrupt)])
    with pytest.raises(WrongUsageError, match="cannot be read"):
        import_files(spark, lake, [str(tmp_path / "none.jsonl")])
    checked = check(spark, lake)
    assert checked.ok, checked.problems
    assert checked.rows == 20


@pytest.mark.slow
def test_a_check_names_what_is_wrong(spark: SparkSession, lake: Lake) -> None:
    table = lake.changes
    commit(
        frame(spark, [*entries(1, 5), hole(6, 9), (f"{START_MS + 10_000}-10", b"")]).coalesce(1), table, ingested_ms=5
    )
    (file, *_) = table.pin().files
    # A file with the last rows is overwritten by one with the first rows.
    commit(frame(spark, entries(11, 12)).coalesce(1), table, ingested_ms=5)
    folder = Path(table.folder.uri)
    doubled = next(each for each in table.pin().files if each.first_ord == 11)
    (folder / doubled.path).write_bytes((folder / file.path).read_bytes())
    (folder / doubled.path).with_name(f".{Path(doubled.path).name}.crc").unlink(missing_ok=True)
    problems = "; ".join(check(spark, lake).problems)
    for words in ("versions 6 to 9 were lost", "more than once", "the table's log counts", "the table's record says"):
        assert words in problems


@pytest.mark.slow
def test_a_rebase_begins_another_era(spark: SparkSession, store: Store, tmp_path: Path, namespace_name: str) -> None:
    lake = Lake(str(tmp_path / "lake"), namespace_name)
    lake.changes.create()
    commit(frame(spark, entries(1, 9)), lake.changes, ingested_ms=5)
    store.add(entries(1, 9))
    with pytest.raises(NegativeAnswerError, match="nothing to rebase"):
        rebase(spark, lake)
    store.changes.drop()
    later_ms = START_MS + DAY_MS
    store.add([(f"{later_ms + n}-{n}", payload(n)) for n in range(3, 6)])
    (done,) = rebase(spark, lake)
    assert (done.stream, done.era, done.old_version, done.first_version) == ("changes", 1, 9, 3)
    pinned = lake.changes.pin()
    assert pinned.position == Position(1, 2)
    assert pinned.stream_position == (later_ms + 3, 2)
    assert store.reader_position("pipeline") == 2
    assert check(spark, lake).problems == ["era 1: began with another history"], "the new era has no entries yet"
    fork = pinned.read(spark).where("code = 91").collect()
    assert [(row.era, row.version, row.from_version, row.to_version, row.ms) for row in fork] == [
        (1, 2, 9, 3, later_ms + 3)
    ]
    committed = commit(
        frame(spark, [(f"{later_ms + n}-{n}", payload(n)) for n in range(3, 6)]), lake.changes, ingested_ms=5
    )
    assert committed is not None
    assert (committed.era, committed.first, committed.last) == (1, 3, 5)
    with pytest.raises(NegativeAnswerError):
        rebase(spark, lake)
    problems = check(spark, lake).problems
    assert problems == ["era 1: began with another history"]


@pytest.mark.slow
def test_a_new_era_begins_where_the_store_is(
    spark: SparkSession, store: Store, tmp_path: Path, namespace_name: str
) -> None:
    """First the store is emptied and nothing is written; then it loses its last changes."""
    lake = Lake(str(tmp_path / "lake"), namespace_name)
    lake.changes.create()
    commit(frame(spark, entries(1, 9)), lake.changes, ingested_ms=5)
    before_ms = store.newest().now_ms
    (done,) = rebase(spark, lake)
    assert (done.era, done.old_version, done.first_version) == (1, 9, 1)
    pinned = lake.changes.pin()
    assert (pinned.position, pinned.stream_position) == (Position(1, 0), (0, 0))
    assert before_ms <= (pinned.observed_ms or 0) <= store.newest().now_ms
    fork = pinned.read(spark).where("code = 91").collect()
    assert [(row.era, row.version, row.from_version, row.to_version) for row in fork] == [(1, 0, 9, 1)]
    with pytest.raises(NegativeAnswerError, match="nothing to rebase"):
        rebase(spark, lake)

    # The rest is read again in the new era; the lake cannot tell which entries it had before.
    store.add(entries(1, 12))
    assert commit(frame(spark, entries(1, 12)), lake.changes, ingested_ms=5) is not None
    store.changes.drop()
    store.add(entries(1, 7))
    (done,) = rebase(spark, lake)
    assert (done.era, done.old_version, done.first_version) == (2, 12, 1)
    again = commit(frame(spark, entries(1, 7)), lake.changes, ingested_ms=5)
    assert again is not None
    assert (again.era, again.first, again.last) == (2, 1, 7)
    assert lake.changes.pin().stream_position == (START_MS + 7_000, 7)
    with pytest.raises(NegativeAnswerError, match="nothing to rebase"):
        rebase(spark, lake)


def test_a_rebase_of_the_heartbeat_gaps_adds_no_row(
    spark: SparkSession, store: Store, tmp_path: Path, namespace_name: str
) -> None:
    """No state depends on them. The changes continue as before."""
    lake = Lake(str(tmp_path / "lake"), namespace_name)
    lake.changes.create()
    lake.pulses.create()
    ms = START_MS + 3_000
    for table, name in ((lake.changes, "changes"), (lake.pulses, "pulses")):
        commit_files(table.pin(), [], records={name: Position(0, 3).ord, LAST_MS: ms})
    store.add(entries(1, 3))
    store.add([(f"{ms + 90_000}-1", b"{}")], stream="pulse")
    old = lake.checkpoints("pulse") / "0-of-an-ended-era"
    Path(old.uri).mkdir(parents=True)
    (done,) = rebase(spark, lake)
    assert (done.stream, done.era, done.old_version, done.first_version) == ("pulse", 1, 3, 1)
    pinned = lake.pulses.pin()
    assert (pinned.position, pinned.stream_position, len(pinned.files)) == (Position(1, 0), (ms + 90_000, 0), 0)
    assert lake.changes.pin().position == Position(0, 3)
    assert store.reader_position("pipeline") is None, "the service may trim the heartbeat gaps at any time"
    assert not Path(old.uri).exists()
