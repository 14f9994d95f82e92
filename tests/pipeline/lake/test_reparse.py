"""Rows that can be read at last, beside who makes snapshots meanwhile: no question is given the old ones for long."""

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
def lake(plainly: SparkSession, lake: Lake) -> Lake:
    """Version 3 is of a newer format."""
    rows = [*entries(1, 2, step_ms=SIX_HOURS), (f"{START_MS + 3 * SIX_HOURS}-3", payload(3, v=2, queues=[]))]
    commit(frame(plainly, rows).coalesce(1), lake.changes, ingested_ms=5, stream_end=ends_at(3, START_MS + DAY_MS + 9))
    return lake


def is_readable(spark: SparkSession, lake: Lake) -> bool:
    """As a question behind the snapshot is told."""
    (row,) = history_for(spark, lake, LAST).changes.where("version = 3").select("raw").collect()
    return row.raw is None


@pytest.fixture
def before_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """What happens once, when a snapshot's files are written."""
    waiting: list[Callable[[], object]] = []
    write = WriteAttempt.write

    def interrupted(self: WriteAttempt, rows: DataFrame) -> None:
        write(self, rows)
        if waiting and self.table.name == "snapshots":
            waiting.pop()()

    monkeypatch.setattr(WriteAttempt, "write", interrupted)
    yield waiting
    assert not waiting


def test_a_snapshot_that_was_begun_before_does_not_stand(
    plainly: SparkSession, lake: Lake, before_the_commit: list[Callable[[], object]]
) -> None:
    """The first of all: there is none that could be dropped."""
    before_the_commit.append(lambda: reparse(plainly, lake, known_format=2))
    build(plainly, lake, SECOND)
    assert is_readable(plainly, lake)
    assert build_days(plainly, lake, [SECOND]) == [SECOND]
    assert is_readable(plainly, lake)
    assert build_days(plainly, lake, [SECOND]) == []


def test_a_question_between_both_steps_is_not_given_the_old_snapshot(
    plainly: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read then may be kept, and told to be made of rows that were read again."""
    between: list[bool] = []

    def drop(lake: Lake, ms: int) -> list[str]:
        between.append(is_readable(plainly, lake))
        return drop_after(lake, ms)

    monkeypatch.setattr(reparsing, "drop_after", drop)
    assert build(plainly, lake, SECOND)
    assert not is_readable(plainly, lake)
    assert reparse(plainly, lake, known_format=2).dropped_snapshots == (SECOND,)
    assert between == [True]


def test_who_was_killed_between_both_steps_leaves_no_old_snapshot(
    plainly: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(lake: Lake, ms: int) -> list[str]:
        raise KeyboardInterrupt

    assert build(plainly, lake, SECOND)
    monkeypatch.setattr(reparsing, "drop_after", killed)
    with pytest.raises(KeyboardInterrupt):
        reparse(plainly, lake, known_format=2)
    assert reparse(plainly, lake, known_format=2).raw == 0
    assert is_readable(plainly, lake)
    assert build_days(plainly, lake, [SECOND]) == [SECOND]
    assert is_readable(plainly, lake)
