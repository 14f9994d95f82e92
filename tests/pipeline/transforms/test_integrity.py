"""12 What is late: older than the store's clock was when an earlier batch ended, whatever that batch held."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.history import DEFAULTS, Window
from routebook_pipeline.transforms.integrity import late_entries
from tests.pipeline.asking import QUESTIONS, answers, as_history, compare
from tests.pipeline.oracle import anomalies, integrity
from tests.pipeline.oracle.told import Told
from tests.pipeline.rows import Writer

WINDOW = Window(0, 1_000)


def tell() -> Writer:
    """A batch that found a hole only, one that found a fork only; behind each the store's clock stepped back."""
    told = Writer()
    told.registered(at=10)
    told.hole(3, at=10)
    noted(told, 10, {2: 100})
    told.registered(at=50)
    told.registered(at=120)
    noted(told, 120, {5: 130, 6: 130})
    told.fork(1, at=200)
    noted(told, 200, {0: 300})
    told.registered(at=250)
    told.registered(at=310)
    return told


def noted(told: Writer, until_ms: int, at: dict[int, int]) -> None:
    """With which clock the batches of these versions ended."""
    for row in told.rows:
        if row["era"] == told.era and row["version"] in at and row["ms"] <= until_ms:
            row["ingested_ms"] = at[row["version"]]


@pytest.fixture(scope="module")
def told() -> Told:
    return Told(tell().rows)


def test_by_the_definition(told: Told) -> None:
    """The oracle, by hand: 5 is behind the hole that was noted at 100, 1 of the second era behind the fork."""
    late = integrity.late_entries(told.changes)
    assert [(row["era"], row["version"], row["ms"]) for row in late] == [(1, 5, 50), (2, 1, 250)]
    assert [row["late"] for row in integrity.by_era(told, WINDOW, 0)] == [1, 1]


@pytest.mark.slow
def test_question_12_and_the_anomaly_count_the_same(told: Told, plainly: SparkSession, tmp_path: Path) -> None:
    history = as_history(plainly, str(tmp_path), told.changes, told.pulses)
    question = QUESTIONS["integrity"]
    (rows,) = answers(question, history, [WINDOW])
    assert compare(question, rows, question.of_oracle(told, WINDOW)) == []
    versions = sorted(row.version for row in late_entries(history, WINDOW).collect())
    (found,) = (one for one in anomalies.history(told, WINDOW, DEFAULTS) if one["subject"] == "late")
    assert versions == found["versions"] == [1, 5]
