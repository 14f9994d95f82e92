"""How Spark computes the questions: it reads the history once, spreads the work, and does not mind a long window."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from benchmarks.history import synthetic
from routebook_pipeline.history import DAY_MS, History, Window
from routebook_pipeline.transforms import integrity
from routebook_pipeline.transforms.timeline import release
from tests.pipeline.questions import QUESTIONS, answers, as_history, compare
from tests.pipeline.random_histories import FaultRates, RandomHistory, random_history

SCANS: Final = {
    # Rows of seats and rows of queues, which are different rows.
    "exposure by cluster": 2,
    "exposure by group": 2,
    # The entries of the window once more, for the list of what happened in between.
    "route_diff": 2,
    # Seats, queues, the route table at each midnight, and the heartbeat gaps.
    "anomalies": 4,
    # Sums that were computed before, see `test_integrity_is_one_scan`.
    "integrity": 0,
}
"""How often a question reads the files, if not once."""


@pytest.fixture(scope="module")
def history(small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    random_ = random_history(3, clusters=4, steps=150, fault_rates=FaultRates(baseline=0.02, hole=0.01))
    return as_history(small_spark, str(tmp_path_factory.mktemp("plans")), random_.changes, random_.pulses)


@pytest.fixture(scope="module")
def window(history: History) -> Window:
    """With a midnight in it."""
    first, last = history.changes.agg(F.min("ms"), F.max("ms")).collect()[0]
    return Window(first - DAY_MS, last)


def scans(frame: DataFrame) -> int:
    """The number of times that the executed plan reads files. What is kept in memory is read once, for all its uses."""
    lines = frame._jdf.queryExecution().executedPlan().toString().splitlines()
    kept: set[str] = set()
    number, at = 0, 0
    while at < len(lines):
        subtree = [lines[at]]
        if "InMemoryRelation" in lines[at]:
            subtree += _below(lines, at)
            text = re.sub(r"#\d+L?|\[plan_id=\d+\]|\*\(\d+\)", "", "\n".join(line.strip(" :+-") for line in subtree))
            number += 0 if text in kept else sum("FileScan" in line for line in subtree)
            kept.add(text)
        else:
            number += "FileScan" in lines[at]
        at += len(subtree)
    return number


def _below(lines: list[str], at: int) -> list[str]:
    def depth(line: str) -> int:
        return len(line) - len(line.lstrip(" :+-"))

    end = at + 1
    while end < len(lines) and depth(lines[end]) > depth(lines[at]):
        end += 1
    return lines[at + 1 : end]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "anomalies" else name for name in QUESTIONS]
)
def test_a_question_reads_the_history_once(name: str, history: History, window: Window) -> None:
    found = QUESTIONS[name].of_transforms(history, window)
    assert scans(found) == SCANS.get(name, 1)
    assert found._jdf.queryExecution().executedPlan().toString().count("CartesianProduct") == 0
    assert found._jdf.queryExecution().executedPlan().toString().count("NestedLoopJoin") == 0
    release(history)


def test_integrity_is_one_scan(history: History, window: Window) -> None:
    assert scans(integrity.batches(history, window)) == 1


# -- a long window


LONG_DAYS: Final = 400


@pytest.fixture(scope="module")
def long_history() -> RandomHistory:
    """Some four hundred days with a baseline in most of them."""
    random_ = random_history(7, clusters=3, steps=1_500, fault_rates=FaultRates(baseline=400 / 1_500, hole=3 / 1_500))
    first, last = random_.changes[0]["ms"], random_.changes[-1]["ms"]
    factor = LONG_DAYS * DAY_MS // (last - first)
    times = ("ms", "from_ms", "to_ms", "last_heartbeat_ms", "lost_ms", "ingested_ms")

    def stretched(row: dict[str, Any]) -> dict[str, Any]:
        later = {name: first + (row[name] - first) * factor for name in times if row.get(name) is not None}
        return {**row, **later}

    return replace(
        random_, changes=[stretched(row) for row in random_.changes], pulses=[stretched(row) for row in random_.pulses]
    )


@pytest.mark.slow
def test_every_question_answers_a_window_of_400_days(
    long_history: RandomHistory, small_spark: SparkSession, tmp_path: Path
) -> None:
    rows = long_history.changes
    window = Window(rows[0]["ms"] + DAY_MS, rows[-1]["ms"] + 1)
    assert window.length_ms > (LONG_DAYS - 20) * DAY_MS
    assert sum(row["kind"] == "baseline-end" for row in rows) > LONG_DAYS / 2
    history = as_history(small_spark, str(tmp_path), rows, long_history.pulses)
    different = {}
    for name, question in QUESTIONS.items():
        (found,) = answers(question, history, [window])
        different[name] = compare(question, found, question.of_oracle(long_history, window))
        release(history)
    assert not {name: lines for name, lines in different.items() if lines}


# -- one large cluster

ROWS: Final = 20_000
PARTITIONS: Final = 8
MOST_OF_A_STAGE: Final = 0.5
"""The share of a stage's rows that one task may have. Equal parts would be an eighth."""


@pytest.fixture
def spread(spark: SparkSession) -> Iterator[SparkSession]:
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": str(PARTITIONS)}
    usual = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in usual.items():
        spark.conf.set(name, value)


def shares(spark: SparkSession, group: str) -> list[tuple[int, int]]:
    """Of every stage that read shuffled rows in this job group: the rows of its largest task, and all its rows."""
    store = spark.sparkContext._jsc.sc().statusStore()
    tracker = spark.sparkContext.statusTracker()
    found = []
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            tasks = store.taskList(stage, 0, 1_000)
            rows = [
                tasks.apply(at).taskMetrics().get().shuffleReadMetrics().recordsRead()
                for at in range(tasks.size())
                if tasks.apply(at).taskMetrics().isDefined()
            ]
            if sum(rows):
                found.append((max(rows), sum(rows)))
    return found


@pytest.mark.slow
def test_one_cluster_with_nine_tenths_of_the_changes_is_not_one_task(spread: SparkSession, tmp_path: Path) -> None:
    """Stages with few rows, such as one per group, may be one task."""
    is_large = F.col("group_key") % 10 != 0
    changes = synthetic.history(spread, ROWS, ROWS // 3).withColumn(
        "cluster", F.when(is_large, "large").otherwise(F.col("cluster"))
    )
    changes.repartitionByRange(4, "ord").write.parquet(str(tmp_path / "changes"))
    read = spread.read.parquet(str(tmp_path / "changes"))
    assert read.where("cluster = 'large'").count() > 0.85 * ROWS
    pulses = random_history(3, clusters=1, steps=1, fault_rates=FaultRates()).pulses
    history = as_history(spread, str(tmp_path / "pulses"), [], pulses)
    history = History(read, history.pulses)
    window = Window(synthetic.FIRST_MS + DAY_MS, synthetic.end_of(ROWS, ROWS // 3))
    wrong = {}
    for name, question in QUESTIONS.items():
        spread.sparkContext.setJobGroup(name, name)
        question.of_transforms(history, window).write.format("noop").mode("overwrite").save()
        release(history)
        of_stages = shares(spread, name)
        wrong[name] = [
            (most, all_rows)
            for most, all_rows in of_stages
            if all_rows > 0.2 * ROWS and most > MOST_OF_A_STAGE * all_rows
        ]
    assert not {name: stages for name, stages in wrong.items() if stages}
