"""Answers that are kept: a day is made when there is something new to make it from, and then it stands."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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
    next(kept for kept in STORED_ANSWERS if kept.name == name)
    for name in ("availability-by-seat", "heartbeat-gaps-by-cluster")
)
FEW = (SEATS, GAPS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"), "ns")
    lake.changes.make()
    return lake


class Days:
    """Both days of a lake, an entry an hour, and what is made of them."""

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

    def make(
        self,
        *,
        until_ms: int = END_MS,
        thresholds: Thresholds = DEFAULTS,
        recompute: bool = False,
        answers: Sequence[StoredAnswer] = FEW,
    ) -> list[str]:
        """What was made, as it was told."""
        told: list[str] = []
        made = refresh(
            self.spark,
            self.lake,
            HistoryExtent(until_ms, until_ms, START_MS),
            days_between(START_MS, END_MS),
            thresholds=thresholds,
            recompute=recompute,
            answers=answers,
            report_progress=lambda line: told.append(line.split(" (")[0]),
        )
        ours = [line for line in told if "made" in line]
        assert made == len(ours)
        return ours

    def rows(self, kept: StoredAnswer, day: str) -> list[Row]:
        pinned = kept.table(self.lake).pin()
        schema = kept.table(self.lake).columns
        return to_rows(pinned.read(self.spark, lambda file: file.day == day), schema)


def made(*days: str, answers: Sequence[StoredAnswer] = FEW) -> list[str]:
    return [f"{day}: made {kept.name}" for day in days for kept in answers]


@pytest.fixture
def days(plainly: SparkSession, lake: Lake) -> Days:
    return Days(plainly, lake)


@pytest.mark.slow
def test_a_day_is_made_once_in_one_commit_and_is_the_answer(days: Days) -> None:
    """Also of heartbeat gaps, of which there are none yet: that there is nothing is an answer, too."""
    assert days.make() == made(FIRST, SECOND)
    versions = {kept: kept.table(days.lake).pin().version for kept in FEW}
    assert versions == {SEATS: 2, GAPS: 2}, "a commit for the table, and one for each day"
    assert days.make() == []
    assert {kept: kept.table(days.lake).pin().version for kept in FEW} == versions

    window = Window(START_MS + DAY_MS, END_MS)
    context = AnswerContext(days.lake, HistoryExtent(END_MS, END_MS), ResolvedWindow(window, END_MS))
    inputs = answer(days.spark, context, QUESTIONS["availability"], "seat")
    assert days.rows(SEATS, SECOND) == to_rows(inputs.rows, inputs.schema)
    assert len(days.rows(SEATS, SECOND)) == 3
    assert days.make(recompute=True) == made(FIRST, SECOND)
    assert days.rows(SEATS, SECOND) == to_rows(inputs.rows, inputs.schema)


def test_a_day_belongs_to_a_window_that_has_a_part_of_it() -> None:
    def numbers(start_ms: int, end_ms: int) -> list[int]:
        return [day.start_ms // DAY_MS for day in days_between(start_ms, end_ms)]

    assert numbers(DAY_MS, 2 * DAY_MS) == [1]
    assert numbers(2 * DAY_MS - 1, 2 * DAY_MS + 1) == [1, 2]
    assert numbers(DAY_MS + 5, DAY_MS + 5) == []


def test_looking_costs_one_opening_of_each_table_however_many_days(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in FEW:
        table = kept.table(lake)
        table.make()
        records: dict[str, int] = {}
        for day in days_between(START_MS, START_MS + 400 * DAY_MS):
            sources = Provenance(0, 0, 0, day.end_ms, fingerprint(DEFAULTS))
            records |= sources.records(kept.name, day_of(day.start_ms))
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
def test_an_entry_makes_the_days_again_that_rest_on_it(days: Days) -> None:
    assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])
    days.add(START_MS + DAY_MS + 23 * HOUR_MS)
    assert days.make(answers=[SEATS]) == made(SECOND, answers=[SEATS])

    # Its time lies in the first day, its version behind everything.
    days.add(START_MS + 23 * HOUR_MS, id=9)
    assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])
    for day in (FIRST, SECOND):
        assert 9 in {row["broker_id"] for row in days.rows(SEATS, day)}, day


@pytest.mark.slow
def test_what_can_be_read_at_last_makes_its_day_again(days: Days) -> None:
    """A reparse adds no version. The first day rests on nothing that it changed."""
    days.add(START_MS + DAY_MS + 23 * HOUR_MS, v=2, id=9, queues=[])
    assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])
    assert {row["broker_id"] for row in days.rows(SEATS, SECOND)} == {0}

    assert reparse(days.spark, days.lake, known_format=2).readable == 1
    assert days.make(answers=[SEATS]) == made(SECOND, answers=[SEATS])
    assert {row["broker_id"] for row in days.rows(SEATS, SECOND)} == {0, 9}
    assert days.make(answers=[SEATS]) == []


@pytest.mark.slow
def test_other_thresholds_make_all_days_again(days: Days) -> None:
    strict = replace(DEFAULTS, retire_after_ms=1)
    assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])
    assert days.make(answers=[SEATS], thresholds=strict) == made(FIRST, SECOND, answers=[SEATS])
    assert days.make(answers=[SEATS], thresholds=strict) == []
    (said,) = SEATS.table(days.lake).pin().delta.history(1)
    assert '"retire_after_ms": 1,' in said["thresholds"]
    assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])


@pytest.mark.slow
def test_the_open_day_is_made_as_far_as_it_is_over_and_again_when_more_is(days: Days) -> None:
    noon = START_MS + DAY_MS + DAY_MS // 2
    assert days.make(answers=[SEATS], until_ms=noon) == made(FIRST, SECOND, answers=[SEATS])
    assert {row["up_ms"] for row in days.rows(SEATS, SECOND)} == {DAY_MS // 2}
    assert days.make(answers=[SEATS], until_ms=noon) == []
    # Somebody whose store did not answer knows less than is there already.
    assert days.make(answers=[SEATS], until_ms=noon - 1) == []
    assert days.make(answers=[SEATS]) == made(SECOND, answers=[SEATS])
    assert {row["up_ms"] for row in days.rows(SEATS, SECOND)} == {DAY_MS}
    assert days.make(answers=[SEATS], until_ms=START_MS) == [], "nothing of any day is over"


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What happens once, when an answer's files are written and not yet committed."""
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
    """While ours is computed, an entry comes and another process makes the days."""

    def somebody_else() -> None:
        days.add(START_MS + 23 * HOUR_MS, id=9)
        assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])

    between.append(somebody_else)
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
    assert paths(table) == {file.path for file in table.pin().files}, "what was thrown away is gone"


@pytest.mark.slow
def test_who_looked_before_another_committed_looks_again(
    days: Days, between: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and committing: the table refuses, and what the other made stands."""
    looked: list[PinnedTable] = []

    def somebody_else() -> None:
        looked.append(SEATS.table(days.lake).pin())
        assert days.make(answers=[SEATS]) == made(FIRST, SECOND, answers=[SEATS])
        pin = Table.pin
        monkeypatch.setattr(Table, "pin", lambda self: looked.pop() if looked else pin(self))

    between.append(somebody_else)
    assert days.make(answers=[SEATS]) == []
    assert not looked


@pytest.mark.slow
def test_two_at_once_make_each_day_once(days: Days) -> None:
    told: list[list[str]] = []
    several = [threading.Thread(target=lambda: told.append(days.make(answers=[SEATS]))) for _ in range(2)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert len(told) == 2
    assert SEATS.table(days.lake).pin().version == 2
    assert len(days.rows(SEATS, FIRST)) == len(days.rows(SEATS, SECOND)) == 3
