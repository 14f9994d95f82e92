"""Which rows a question gets, and when it gets an error."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import Instant, Window
from routebook_pipeline.lake import snapshots
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.reading import complete_until, history_for
from routebook_pipeline.lake.snapshots import build, build_days, closed_days
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Position
from routebook_pipeline.lake.transactions import commit_files
from routebook_pipeline.source.stream import EntryId, StreamEnd
from tests.pipeline.lake.logs import write_log
from tests.pipeline.lake.streams import DAY_MS, START_MS, ends_at, entries, frame

SIX_HOURS = DAY_MS // 4


def versions_in(rows: DataFrame) -> list[int]:
    return sorted(row.version for row in rows.select("version").collect())


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four entries a day, a file each day; version 4 is the midnight after the first day."""
    root = tmp_path_factory.mktemp("week")
    lake = Lake(str(root), "ns")
    lake.changes.create()
    batch = frame(spark, entries(1, 27, step_ms=SIX_HOURS)).coalesce(1)
    commit(batch, lake.changes, ingested_ms=5, stream_end=ends_at(27, START_MS + 27 * SIX_HOURS + 5))
    return root


@pytest.fixture
def week(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A copy for each test, which works because tables contain no absolute paths. Its few rows count as many."""
    monkeypatch.setattr(snapshots, "FEW_ROWS", 0)
    shutil.copytree(written, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"), "ns")


@pytest.mark.slow
def test_a_question_reads_a_snapshot_and_the_changes_after_it(spark: SparkSession, week: Lake) -> None:
    logged: list[str] = []
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    # There are three seats: the entries that began their states, their last registrations, and the later changes.
    kept = [1, 2, 3, *range(21, 28)]
    assert versions_in(history_for(spark, week, last_day, log=logged.append).changes) == kept
    assert len(logged) == 1
    assert "there is no snapshot of 2023-12-15" in logged[0]
    assert [file.day for file in week.snapshots.pin().files] == ["2023-12-15"]

    # The snapshot is used again. Two days earlier there is none, but there is not much to read either.
    second = Window(START_MS + 2 * DAY_MS, START_MS + 3 * DAY_MS)
    assert versions_in(history_for(spark, week, last_day, log=logged.append).changes) == kept
    assert versions_in(history_for(spark, week, second, log=logged.append).changes) == [*range(1, 12)]
    assert len(logged) == 1
    # After the snapshot's midnight, but looking back before it; and at a position.
    back = history_for(spark, week, Window(last_day.start_ms, last_day.end_ms), lookback_ms=4 * DAY_MS)
    assert versions_in(back.changes) == [*range(1, 28)]
    assert versions_in(history_for(spark, week, Instant(ord=25)).changes) == kept[:-2]
    assert versions_in(history_for(spark, week, Instant(ms=START_MS + 9 * SIX_HOURS)).changes) == [*range(1, 10)]
    assert back.pulses.isEmpty()


@pytest.mark.slow
def test_a_late_entry_makes_the_snapshot_stale(spark: SparkSession, week: Lake) -> None:
    """The store's clock was set back."""
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    logged: list[str] = []
    history_for(spark, week, last_day, log=logged.append)
    late = (f"{START_MS + 23 * SIX_HOURS}-28", entries(28, 28)[0][1])
    commit(frame(spark, [late]), week.changes, ingested_ms=5)
    assert 28 in versions_in(history_for(spark, week, last_day, log=logged.append).changes)
    assert len(logged) == 2


@pytest.mark.slow
def test_a_position_in_an_ended_era_is_answered_from_that_era(spark: SparkSession, week: Lake) -> None:
    """The store lost its last changes, and the rest was read again: new versions at the times of the old ones. A
    snapshot built since then contains both.
    """
    position = Instant(ord=Position(0, 25).ord)
    assert build(spark, week, "2023-12-15")
    before = versions_in(history_for(spark, week, position).changes)

    changes = week.changes
    commit_files(changes.pin(), [], records={"changes": Position(1, 0).ord})
    again = commit(frame(spark, entries(1, 26, step_ms=SIX_HOURS)), changes, ingested_ms=6)
    assert again is not None
    assert again.era == 1
    assert build(spark, week, "2023-12-15"), "it is stale"

    logged: list[str] = []
    rows = history_for(spark, week, position, log=logged.append).changes
    assert {row.era for row in rows.select("era").distinct().collect()} == {0}
    assert set(before) <= set(versions_in(rows)) <= set(range(1, 26))
    assert logged == [], "no snapshot was built, since it would contain both eras too"
    assert {row.era for row in history_for(spark, week, Instant(ms=START_MS + 6 * DAY_MS)).changes.collect()} == {0, 1}


@pytest.mark.slow
def test_many_days_get_only_the_snapshots_that_questions_need(
    spark: SparkSession, week: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = closed_days(week)
    assert build_days(spark, week, days) == ["2023-12-12", "2023-12-15"], "every third day"
    assert build_days(spark, week, days) == []
    assert build_days(spark, week, days, every_day=True) == [day for day in days if day[-2:] not in ("12", "15")]
    monkeypatch.setattr(snapshots, "FEW_ROWS", 28)
    assert build_days(spark, week, days, rebuild=True) == days, "those that exist"
    logged: list[str] = []
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    week.snapshots.folder.remove()
    assert versions_in(history_for(spark, week, last_day, log=logged.append).changes) == [*range(1, 28)]
    assert logged == [], "a short history is read from its start"


@pytest.mark.slow
def test_a_snapshot_is_built_when_the_lake_has_reached_its_day(spark: SparkSession, week: Lake) -> None:
    assert closed_days(week) == [f"2023-12-{day}" for day in ("10", "11", "12", "13", "14", "15")]
    assert build(spark, week, "2023-12-11")
    assert not build(spark, week, "2023-12-11"), "it is valid"
    assert not build(spark, week, "2023-12-09"), "there are no changes before it"
    assert not build(spark, week, "2023-12-16"), "the lake has not reached that day"


def test_a_pinned_version_does_not_change(spark: SparkSession, week: Lake) -> None:
    pinned = week.changes.pin()
    commit(frame(spark, entries(28, 30, step_ms=SIX_HOURS)), week.changes, ingested_ms=5)
    assert len(pinned.files) < len(week.changes.pin().files)
    gone = pinned.files[0].path
    Path(week.changes.folder.uri, gone).unlink()
    with pytest.raises(UnreachableError, match=gone):
        pinned.read(spark)


def test_the_lake_is_complete_until_the_last_observation(lake: Lake) -> None:
    last = EntryId(START_MS + 27 * SIX_HOURS, 27)
    write_log(lake.changes, ["2023-12-15"], changes=27, **{LAST_MS: last.ms, OBSERVED: last.ms + 5})
    assert complete_until(lake, None) == last.ms + 5
    assert complete_until(lake, StreamEnd(last, last.ms + 99)) == last.ms + 99
    assert complete_until(lake, StreamEnd(EntryId(last.ms + 1, 28), last.ms + 99)) == last.ms + 5
    assert complete_until(lake, StreamEnd(EntryId(last.ms + 1, 27), last.ms + 99)) == last.ms + 5


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Makes the folder read-only: by its mode, or for root by a mount, since root may write whatever the mode."""
    if os.geteuid() != 0:
        folders = [folder, *(below for below in folder.rglob("*") if below.is_dir())]
        for one in folders:
            one.chmod(0o555)
        try:
            yield
        finally:
            for one in folders:
                one.chmod(0o755)
        return
    if shutil.which("mount") is None:
        pytest.skip("for root, a folder is made read-only with the program mount, which is not here")
    mounted = subprocess.run(
        ["mount", "--bind", "-o", "ro", str(folder), str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("with_table", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_without_write_permission_a_question_is_answered_without_a_snapshot(
    spark: SparkSession, week: Lake, with_table: bool
) -> None:
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    logged: list[str] = []
    if with_table:
        week.snapshots.create()
    with read_only(Path(week.root)):
        rows = history_for(spark, week, last_day, log=logged.append).changes
        assert versions_in(rows) == [*range(1, 28)]
    assert len(logged) == 2
    assert "could not be stored" in logged[1]

    gone = week.changes.pin().files[0].path
    Path(week.changes.folder.uri, gone).unlink()
    with read_only(Path(week.root)), pytest.raises(UnreachableError, match=gone):
        history_for(spark, week, last_day)


def test_the_errors_for_a_missing_and_an_empty_lake_say_what_to_do(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    with pytest.raises(UnreachableError, match=r"is empty.*ingest"):
        history_for(spark, lake, Instant(ms=5))
    with pytest.raises(UnreachableError, match=r"no table 'changes'.*--lake"):
        history_for(spark, Lake(str(tmp_path / "elsewhere"), "ns"), Instant(ms=5))
