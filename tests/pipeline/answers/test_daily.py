"""Stored answers: a day is computed once, and again only if something that it depends on has changed."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import AnswerContext, Row, answer, to_rows
from routebook_pipeline.answers.coverage import HistoryExtent, ResolvedWindow
from routebook_pipeline.answers.daily import (
    STORED_ANSWERS,
    Provenance,
    StoredAnswer,
    days_between,
    fingerprint,
    refresh,
)
from routebook_pipeline.history import DAY_MS, DEFAULTS, HOUR_MS, Thresholds, Window
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.reparse import reparse
from routebook_pipeline.lake.tables import Lake, PinnedTable, Table
from routebook_pipeline.lake.transactions import WriteAttempt, commit_files
from routebook_pipeline.times import day_of
from tests.pipeline.lake.logs import NO_SPARK
from tests.pipeline.lake.streams import START_MS, frame, paths, payload

FIRST, SECOND = "2023-12-09", "2023-12-10"
END_MS = START_MS + 2 * DAY_MS

SEATS, GAPS = (
    next(stored for stored in STORED_ANSWERS if stored.name == name)
    for name in ("availability-by-seat", "heartbeat-gaps-by-cluster")
)
FEW = (SEATS, GAPS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"), "ns")
    lake.changes.create()
    return lake


class Days:
    """A lake with two days of entries, one per hour, and the stored answers of these days."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self._version = 0
        self.add(*(START_MS + number * HOUR_MS for number in range(1, 40)))

    def add(self, *times_ms: int, **fields: Any) -> None:
        rows = []
        for ms in times_ms:
            self._version += 1
            rows.append((f"{ms}-{self._version}", payload(self._version, **fields)))
        commit(frame(self.spark, rows).coalesce(1), self.lake.changes, ingested_ms=5)

    def refresh(
        self,
        *,
        until_ms: int = END_MS,
        thresholds: Thresholds = DEFAULTS,
        recompute: bool = False,
        answers: Sequence[StoredAnswer] = FEW,
    ) -> list[str]:
        """The progress lines of the answers that this call computed."""
        lines: list[str] = []
        number = refresh(
            self.spark,
            self.lake,
            HistoryExtent(until_ms, until_ms, START_MS),
            days_between(START_MS, END_MS),
            thresholds=thresholds,
            recompute=recompute,
            answers=answers,
            report_progress=lambda line: lines.append(line.split(" (")[0]),
        )
        ours = [line for line in lines if "another process" not in line]
        assert number == len(ours)
        return ours

    def rows(self, stored: StoredAnswer, day: str) -> list[Row]:
        pinned = stored.table(self.lake).pin()
        schema = stored.table(self.lake).columns
        return to_rows(pinned.read(self.spark, pinned.files.where(compute.field("day") == day)), schema)


def computed(*days: str, answers: Sequence[StoredAnswer] = FEW) -> list[str]:
    """The progress lines of these days."""
    return [f"{day}: computed {stored.name}" for stored in answers for day in days]


@pytest.fixture
def days(small_spark: SparkSession, lake: Lake) -> Days:
    return Days(small_spark, lake)


@pytest.mark.slow
def test_days_are_computed_once_in_one_commit_and_equal_the_answer(days: Days) -> None:
    """This includes the heartbeat gaps, of which there are none yet: an empty answer is stored, too."""
    assert days.refresh() == computed(FIRST, SECOND)
    versions = {stored: stored.table(days.lake).pin().version for stored in FEW}
    assert versions == {SEATS: 1, GAPS: 1}, "a commit for the table, and one for both days"
    assert days.refresh() == []
    assert {stored: stored.table(days.lake).pin().version for stored in FEW} == versions

    window = Window(START_MS + DAY_MS, END_MS)
    context = AnswerContext(days.lake, HistoryExtent(END_MS, END_MS), ResolvedWindow(window, END_MS))
    expected = answer(days.spark, context, QUESTIONS["availability"], "seat")
    assert days.rows(SEATS, SECOND) == to_rows(expected.rows, expected.schema)
    assert len(days.rows(SEATS, SECOND)) == 3
    assert days.refresh(recompute=True) == computed(FIRST, SECOND)
    assert days.rows(SEATS, SECOND) == to_rows(expected.rows, expected.schema)


def test_the_days_of_a_window_include_days_that_it_overlaps_partly() -> None:
    def numbers(start_ms: int, end_ms: int) -> list[int]:
        return [day.start_ms // DAY_MS for day in days_between(start_ms, end_ms)]

    assert numbers(DAY_MS, 2 * DAY_MS) == [1]
    assert numbers(2 * DAY_MS - 1, 2 * DAY_MS + 1) == [1, 2]
    assert numbers(DAY_MS + 5, DAY_MS + 5) == []


def test_checking_many_days_opens_each_table_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for stored in FEW:
        table = stored.table(lake)
        table.create()
        records: dict[str, int] = {}
        for day in days_between(START_MS, START_MS + 400 * DAY_MS):
            provenance = Provenance(0, 0, 0, day.end_ms, fingerprint(DEFAULTS))
            records |= provenance.records(stored.name, day_of(day.start_ms))
        commit_files(table.pin(), [], records=records)
    opened: list[str] = []
    pin = Table.pin

    def counted(table: Table) -> PinnedTable:
        opened.append(table.name)
        return pin(table)

    monkeypatch.setattr(Table, "pin", counted)
    extent = HistoryExtent(START_MS + 400 * DAY_MS, START_MS + 400 * DAY_MS)
    assert refresh(NO_SPARK, lake, extent, days_between(START_MS, extent.complete_until_ms), answers=FEW) == 0
    assert sorted(opened) == ["answers/availability-by-seat", "answers/heartbeat-gaps-by-cluster", "changes"]


@pytest.mark.slow
def test_a_new_entry_makes_its_day_and_all_later_days_stale(days: Days) -> None:
    assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])
    days.add(START_MS + DAY_MS + 23 * HOUR_MS)
    assert days.refresh(answers=[SEATS]) == computed(SECOND, answers=[SEATS])

    # A late entry: its time lies in the first day, and its version is the highest.
    days.add(START_MS + 23 * HOUR_MS, id=9)
    assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])
    for day in (FIRST, SECOND):
        assert 9 in {row["broker_id"] for row in days.rows(SEATS, day)}, day


@pytest.mark.slow
def test_a_reparsed_entry_makes_its_day_stale(days: Days) -> None:
    """A reparse adds no version. The first day does not depend on anything that it changed."""
    days.add(START_MS + DAY_MS + 23 * HOUR_MS, v=2, id=9, queues=[])
    assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])
    assert {row["broker_id"] for row in days.rows(SEATS, SECOND)} == {0}

    assert reparse(days.spark, days.lake, known_format=2).readable == 1
    assert days.refresh(answers=[SEATS]) == computed(SECOND, answers=[SEATS])
    assert {row["broker_id"] for row in days.rows(SEATS, SECOND)} == {0, 9}
    assert days.refresh(answers=[SEATS]) == []


@pytest.mark.slow
def test_other_thresholds_make_all_days_stale(days: Days) -> None:
    strict = replace(DEFAULTS, retire_after_ms=1)
    assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])
    assert days.refresh(answers=[SEATS], thresholds=strict) == computed(FIRST, SECOND, answers=[SEATS])
    assert days.refresh(answers=[SEATS], thresholds=strict) == []
    (commit_info,) = SEATS.table(days.lake).pin().delta.history(1)
    assert '"retire_after_ms": 1,' in commit_info["thresholds"]
    assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])


@pytest.mark.slow
def test_the_open_day_is_computed_again_when_more_of_it_is_complete(days: Days) -> None:
    noon = START_MS + DAY_MS + DAY_MS // 2
    assert days.refresh(answers=[SEATS], until_ms=noon) == computed(FIRST, SECOND, answers=[SEATS])
    assert {row["up_ms"] for row in days.rows(SEATS, SECOND)} == {DAY_MS // 2}
    assert days.refresh(answers=[SEATS], until_ms=noon) == []
    # A run whose store did not answer knows less than the stored answer contains.
    assert days.refresh(answers=[SEATS], until_ms=noon - 1) == []
    assert days.refresh(answers=[SEATS]) == computed(SECOND, answers=[SEATS])
    assert {row["up_ms"] for row in days.rows(SEATS, SECOND)} == {DAY_MS}
    assert days.refresh(answers=[SEATS], until_ms=START_MS) == [], "no part of any day is complete"


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """An action that runs once, after an answer's files are written and before they are committed."""
    waiting: list[Any] = []
    write = WriteAttempt.write

    def interrupted(self: WriteAttempt, rows: DataFrame) -> None:
        write(self, rows)
        if waiting and self.table.name == f"answers/{SEATS.name}":
            waiting.pop()()

    monkeypatch.setattr(WriteAttempt, "write", interrupted)
    yield waiting
    assert not waiting


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
def test_an_answer_is_never_replaced_by_an_older_one(days: Days, between: list[Any], recompute: bool) -> None:
    """While we compute, an entry arrives and another process computes the days."""

    def other_process() -> None:
        days.add(START_MS + 23 * HOUR_MS, id=9)
        assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])

    between.append(other_process)
    ours = refresh(
        days.spark,
        days.lake,
        HistoryExtent(END_MS, END_MS),
        days_between(START_MS, END_MS),
        recompute=recompute,
        answers=[SEATS],
    )
    assert ours == 0
    assert 9 in {row["broker_id"] for row in days.rows(SEATS, FIRST)}
    table = SEATS.table(days.lake)
    assert paths(table) == {file.path for file in table.pin().files}, "the discarded files are deleted"


@pytest.mark.slow
def test_a_commit_that_another_process_overtook_is_checked_again(
    days: Days, between: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process commits between our check and our commit. Our commit fails, and the other's day is kept."""
    outdated: list[PinnedTable] = []

    def other_process() -> None:
        outdated.append(SEATS.table(days.lake).pin())
        assert days.refresh(answers=[SEATS]) == computed(FIRST, SECOND, answers=[SEATS])
        pin = Table.pin
        monkeypatch.setattr(Table, "pin", lambda self: outdated.pop() if outdated else pin(self))

    between.append(other_process)
    assert days.refresh(answers=[SEATS]) == []
    assert not outdated


@pytest.mark.slow
def test_two_concurrent_runs_compute_each_day_once(days: Days) -> None:
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(days.refresh(answers=[SEATS]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert SEATS.table(days.lake).pin().version == 1
    assert len(days.rows(SEATS, FIRST)) == len(days.rows(SEATS, SECOND)) == 3
