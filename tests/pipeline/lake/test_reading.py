"""What a question is given, and when it is given nothing."""

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
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.reading import complete_until, history_for
from routebook_pipeline.lake.snapshots import build, closed_days
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Position
from routebook_pipeline.lake.transactions import commit_files
from routebook_pipeline.source.stream import EntryId, StreamEnd
from tests.pipeline.lake.logs import tell
from tests.pipeline.lake.streams import DAY_MS, START_MS, ends_at, entries, frame

SIX_HOURS = DAY_MS // 4


def found(rows: DataFrame) -> list[int]:
    return sorted(row.version for row in rows.select("version").collect())


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four entries a day, a file each day; version 4 is the midnight after the first day."""
    root = tmp_path_factory.mktemp("week")
    lake = Lake(str(root), "ns")
    lake.changes.make()
    batch = frame(spark, entries(1, 27, step_ms=SIX_HOURS)).coalesce(1)
    commit(batch, lake.changes, ingested_ms=5, stream_end=ends_at(27, START_MS + 27 * SIX_HOURS + 5))
    return root


@pytest.fixture
def week(written: Path, tmp_path: Path) -> Lake:
    """A copy of one's own: no table knows where it lies."""
    shutil.copytree(written, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"), "ns")


@pytest.mark.slow
def test_a_question_reads_a_snapshot_and_what_followed(spark: SparkSession, week: Lake) -> None:
    said: list[str] = []
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    # Three seats take turns: what began their states, their last registrations, and what followed.
    kept = [1, 2, 3, *range(21, 28)]
    assert found(history_for(spark, week, last_day, log=said.append).changes) == kept
    assert len(said) == 1
    assert "there is no snapshot of 2023-12-15" in said[0]
    assert [file.day for file in week.snapshots.pin().files] == ["2023-12-15"]

    # It stands; two days earlier nothing does, but there is not much to read either.
    second = Window(START_MS + 2 * DAY_MS, START_MS + 3 * DAY_MS)
    assert found(history_for(spark, week, last_day, log=said.append).changes) == kept
    assert found(history_for(spark, week, second, log=said.append).changes) == [*range(1, 12)]
    assert len(said) == 1
    # Behind the snapshot's midnight, looking back before it; and at a place.
    back = history_for(spark, week, Window(last_day.start_ms, last_day.end_ms), lookback_ms=4 * DAY_MS)
    assert found(back.changes) == [*range(1, 28)]
    assert found(history_for(spark, week, Instant(ord=25)).changes) == kept[:-2]
    assert found(history_for(spark, week, Instant(ms=START_MS + 9 * SIX_HOURS)).changes) == [*range(1, 10)]
    assert back.pulses.isEmpty()


@pytest.mark.slow
def test_what_comes_late_makes_the_snapshot_anew(spark: SparkSession, week: Lake) -> None:
    """The store's clock stepped back."""
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    said: list[str] = []
    history_for(spark, week, last_day, log=said.append)
    late = (f"{START_MS + 23 * SIX_HOURS}-28", entries(28, 28)[0][1])
    commit(frame(spark, [late]), week.changes, ingested_ms=5)
    assert 28 in found(history_for(spark, week, last_day, log=said.append).changes)
    assert len(said) == 2


@pytest.mark.slow
def test_a_place_of_an_era_that_ended_is_answered_from_that_era(spark: SparkSession, week: Lake) -> None:
    """The store lost its tail, and what is left of it was read again: new versions at the times of the old ones. A
    snapshot built since holds those.
    """
    place = Instant(ord=Position(0, 25).ord)
    assert build(spark, week, "2023-12-15")
    before = found(history_for(spark, week, place).changes)

    changes = week.changes
    commit_files(changes.pin(), [], records={"changes": Position(1, 0).ord})
    again = commit(frame(spark, entries(1, 26, step_ms=SIX_HOURS)), changes, ingested_ms=6)
    assert again is not None
    assert again.era == 1
    assert build(spark, week, "2023-12-15"), "it no longer stands"

    said: list[str] = []
    rows = history_for(spark, week, place, log=said.append).changes
    assert {row.era for row in rows.select("era").distinct().collect()} == {0}
    assert set(before) <= set(found(rows)) <= set(range(1, 26))
    assert said == [], "another snapshot would be no better"
    assert {row.era for row in history_for(spark, week, Instant(ms=START_MS + 6 * DAY_MS)).changes.collect()} == {0, 1}


@pytest.mark.slow
def test_a_snapshot_is_built_once_a_day_is_reached(spark: SparkSession, week: Lake) -> None:
    assert closed_days(week) == [f"2023-12-{day}" for day in ("10", "11", "12", "13", "14", "15")]
    assert build(spark, week, "2023-12-11")
    assert not build(spark, week, "2023-12-11"), "it stands"
    assert not build(spark, week, "2023-12-09"), "nothing was before"
    assert not build(spark, week, "2023-12-16"), "that day is not reached"


def test_a_pinned_version_stays_as_it_is(spark: SparkSession, week: Lake) -> None:
    pinned = week.changes.pin()
    commit(frame(spark, entries(28, 30, step_ms=SIX_HOURS)), week.changes, ingested_ms=5)
    assert len(pinned.files) < len(week.changes.pin().files)
    gone = pinned.files[0].path
    Path(week.changes.folder.uri, gone).unlink()
    with pytest.raises(UnreachableError, match=gone):
        pinned.read(spark)


def test_until_when_the_lake_is_complete(lake: Lake) -> None:
    last = EntryId(START_MS + 27 * SIX_HOURS, 27)
    tell(lake.changes, ["2023-12-15"], changes=27, **{LAST_MS: last.ms, OBSERVED: last.ms + 5})
    assert complete_until(lake, None) == last.ms + 5
    assert complete_until(lake, StreamEnd(last, last.ms + 99)) == last.ms + 99
    assert complete_until(lake, StreamEnd(EntryId(last.ms + 1, 28), last.ms + 99)) == last.ms + 5
    assert complete_until(lake, StreamEnd(EntryId(last.ms + 1, 27), last.ms + 99)) == last.ms + 5


@contextmanager
def reading_only(folder: Path) -> Iterator[None]:
    """Nobody may write there; root, who may whatever the modes say, for it is mounted so."""
    if os.geteuid() != 0:
        folders = [folder, *(found for found in folder.rglob("*") if found.is_dir())]
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
def test_who_may_only_read_is_answered_without_a_snapshot(spark: SparkSession, week: Lake, with_table: bool) -> None:
    last_day = Window(START_MS + 6 * DAY_MS, START_MS + 7 * DAY_MS)
    said: list[str] = []
    if with_table:
        week.snapshots.make()
    with reading_only(Path(week.root)):
        rows = history_for(spark, week, last_day, log=said.append).changes
        assert found(rows) == [*range(1, 28)]
    assert len(said) == 2
    assert "could not be kept" in said[1]

    gone = week.changes.pin().files[0].path
    Path(week.changes.folder.uri, gone).unlink()
    with reading_only(Path(week.root)), pytest.raises(UnreachableError, match=gone):
        history_for(spark, week, last_day)


def test_no_lake_and_an_empty_one_say_what_to_do(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"is empty.*ingest"):
        history_for(spark, lake, Instant(ms=5))
    with pytest.raises(UnreachableError, match=r"no table 'changes'.*--lake"):
        history_for(spark, Lake(str(tmp_path / "elsewhere"), "ns"), Instant(ms=5))
