"""A question over several days, computed in one pass, has the rows that the oracle computes for each day by itself."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, DAY_NUMBER, DEFAULTS, HOUR_MS, MINUTE_MS, Days, History
from routebook_pipeline.transforms import capacity, churn
from routebook_pipeline.transforms.timeline import Timeline, release
from tests.pipeline.oracle import capacity as oracle_capacity
from tests.pipeline.oracle.history_rows import HistoryRows, ReadRows, Row
from tests.pipeline.questions import QUESTIONS, Question, as_history, compare
from tests.pipeline.random_histories import START_MS, FaultRates, random_history

FAULTS = FaultRates(unreadable=0.003, late=0.002, paused=0.002, baseline=0.003, impossible=0.03)
"""No holes and forks: a day with one is computed by itself."""
NOT_BY_DAY = frozenset({"route_at", "route_diff", "events", "events of a topic"})
OFTEN = "failures by seat"
STRETCH_MS, BREAK_MS = 40 * MINUTE_MS, 5 * HOUR_MS
TIMES = ("ms", "ingested_ms", "last_heartbeat_ms", "lost_ms", "from_ms", "to_ms")

BY_DAY: Mapping[str, Question] = {
    **{name: question for name, question in QUESTIONS.items() if name not in NOT_BY_DAY},
    "capacity": Question(
        ("cluster", "at_ms"),
        capacity.by_cluster,
        lambda rows, window: oracle_capacity.by_cluster(rows, capacity.instants_of(window), DEFAULTS),
    ),
}


def with_breaks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same rows, with five hours in which nothing happens after every forty minutes, so that they fill days."""

    def later(ms: int | None) -> int | None:
        return None if ms is None else ms + max(0, ms - START_MS) // STRETCH_MS * BREAK_MS

    return [{**row} | {name: later(row[name]) for name in TIMES if name in row} for row in rows]


def with_entries_at_midnight(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same rows, but the first entry after every other midnight lies exactly at it, and so is of the new day."""
    earlier = math.floor(rows[0]["ms"] / DAY_MS)
    moved: dict[int, int] = {}
    for row in rows:
        number = math.floor(row["ms"] / DAY_MS)
        if number > earlier and number % 2:
            moved[row["ord"]] = number * DAY_MS
        earlier = number
    return [{**row} | ({"ms": moved[row["ord"]]} if row["ord"] in moved else {}) for row in rows]


class Case:
    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        made = random_history(seed, clusters=40, steps=1500, fault_rates=FAULTS)
        changes, pulses = with_entries_at_midnight(with_breaks(made.changes)), with_breaks(made.pulses)
        assert any(row["ms"] % DAY_MS == 0 for row in changes)
        self.rows: HistoryRows = ReadRows(changes, pulses)
        self.history: History = as_history(spark, str(folder), changes, pulses)
        first, last = (math.floor(changes[at]["ms"] / DAY_MS) for at in (0, -1))
        # The last day is not complete, and the first days of the history are before the window.
        self.days = Days((first + 1) * DAY_MS, last * DAY_MS + 9 * HOUR_MS)

    def differences(self, name: str, question: Question) -> list[str]:
        Timeline.of(self.history, self.days).persist()
        try:
            found = [row.asDict(recursive=True) for row in question.of_transforms(self.history, self.days).collect()]
        finally:
            release(self.history)
        assert found, f"{name}: no day has a row"
        different = []
        for window in self.days.windows:
            number = window.start_ms // DAY_MS
            rows = [without_day(row) for row in found if row[DAY_NUMBER] == number]
            lines = compare(question, rows, question.of_oracle(self.rows, window))
            different += [f"{name}, day {number}: {line}" for line in lines]
        known = {window.start_ms // DAY_MS for window in self.days.windows}
        return different + [f"{name}: {row}" for row in found if row[DAY_NUMBER] not in known]


def without_day(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != DAY_NUMBER}


@pytest.fixture(scope="module")
def case(small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(small_spark, tmp_path_factory.mktemp("days"), 500)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == OFTEN else pytest.mark.slow) for name in BY_DAY]
)
def test_several_days_in_one_pass_equal_each_day_by_itself(name: str, case: Case) -> None:
    assert len(case.days.windows) > 4
    assert not case.differences(name, BY_DAY[name])


@pytest.mark.slow
def test_a_broker_in_two_clusters_is_noticed(case: Case) -> None:
    """Its topics would move with it, which the sums of `churn` over several days leave out."""
    assert churn.one_cluster_per_broker(case.history)
    moved = case.history.changes.withColumn("cluster", F.lit("another"))
    both = case.history.changes.unionByName(moved)
    assert not churn.one_cluster_per_broker(History(both, case.history.pulses))
