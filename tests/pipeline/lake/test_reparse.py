"""A reparse while snapshots are being built: no question keeps getting a snapshot from before the reparse."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.history import Instant
from routebook_pipeline.lake import reparse as reparsing
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.reparse import reparse
from routebook_pipeline.lake.snapshots import build, build_days, drop_after
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.lake.transactions import WriteAttempt
from tests.pipeline.lake.streams import DAY_MS, START_MS, ends_at, entries, frame, payload

pytestmark = pytest.mark.slow

SECOND = "2023-12-10"
LAST = Instant(ms=START_MS + DAY_MS + 5)
SIX_HOURS = DAY_MS // 4


@pytest.fixture
def lake(small_spark: SparkSession, lake: Lake) -> Lake:
    """Version 3 is of a newer format."""
    rows = [*entries(1, 2, step_ms=SIX_HOURS), (f"{START_MS + 3 * SIX_HOURS}-3", payload(3, v=2, queues=[]))]
    commit(
        frame(small_spark, rows).coalesce(1), lake.changes, ingested_ms=5, stream_end=ends_at(3, START_MS + DAY_MS + 9)
    )
    return lake


def is_readable(spark: SparkSession, lake: Lake) -> bool:
    """Whether a question after the snapshot sees version 3 as readable."""
    (row,) = history_for(spark, lake, LAST).changes.where("version = 3").select("raw").collect()
    return row.raw is None


@pytest.fixture
def before_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """Actions to run once, when the files of a snapshot have been written."""
    actions: list[Callable[[], object]] = []
    write = WriteAttempt.write

    def interrupted(self: WriteAttempt, rows: DataFrame) -> None:
        write(self, rows)
        if actions and self.table.name == "snapshots":
            actions.pop()()

    monkeypatch.setattr(WriteAttempt, "write", interrupted)
    yield actions
    assert not actions


def test_a_snapshot_begun_before_the_reparse_is_stale(
    small_spark: SparkSession, lake: Lake, before_the_commit: list[Callable[[], object]]
) -> None:
    """It is the first snapshot, so the reparse has none to drop."""
    before_the_commit.append(lambda: reparse(small_spark, lake, known_format=2))
    build(small_spark, lake, SECOND)
    assert is_readable(small_spark, lake)
    assert build_days(small_spark, lake, [SECOND], every_day=True) == [SECOND]
    assert is_readable(small_spark, lake)
    assert build_days(small_spark, lake, [SECOND], every_day=True) == []


def test_a_question_between_both_steps_does_not_get_the_old_snapshot(
    small_spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rewrite and the drop: its answer may be stored as one computed from the new rows."""
    between: list[bool] = []

    def drop(lake: Lake, ms: int) -> list[str]:
        between.append(is_readable(small_spark, lake))
        return drop_after(lake, ms)

    monkeypatch.setattr(reparsing, "drop_after", drop)
    assert build(small_spark, lake, SECOND)
    assert not is_readable(small_spark, lake)
    assert reparse(small_spark, lake, known_format=2).dropped_snapshots == (SECOND,)
    assert between == [True]


def test_a_reparse_killed_between_both_steps_leaves_no_valid_old_snapshot(
    small_spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(lake: Lake, ms: int) -> list[str]:
        raise KeyboardInterrupt

    assert build(small_spark, lake, SECOND)
    monkeypatch.setattr(reparsing, "drop_after", killed)
    with pytest.raises(KeyboardInterrupt):
        reparse(small_spark, lake, known_format=2)
    assert reparse(small_spark, lake, known_format=2).raw == 0
    assert is_readable(small_spark, lake)
    assert build_days(small_spark, lake, [SECOND], every_day=True) == [SECOND]
    assert is_readable(small_spark, lake)
