"""12 What is late: older than the store's clock was when an earlier batch ended, whatever that batch held."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.history import DEFAULTS, Window
from routebook_pipeline.transforms.integrity import late_entries
from tests.pipeline.oracle import anomalies, integrity
from tests.pipeline.questions import QUESTIONS, answers, as_history, compare
from tests.pipeline.scenario import Scenario

WINDOW = Window(0, 1_000)


def make_scenario() -> Scenario:
    """A batch that found a hole only, one that found a fork only; behind each the store's clock stepped back."""
    scenario = Scenario()
    scenario.registered(at=10)
    scenario.hole(3, at=10)
    noted(scenario, 10, {2: 100})
    scenario.registered(at=50)
    scenario.registered(at=120)
    noted(scenario, 120, {5: 130, 6: 130})
    scenario.fork(1, at=200)
    noted(scenario, 200, {0: 300})
    scenario.registered(at=250)
    scenario.registered(at=310)
    return scenario


def noted(scenario: Scenario, until_ms: int, at: dict[int, int]) -> None:
    """With which clock the batches of these versions ended."""
    for row in scenario.changes:
        if row["era"] == scenario.era and row["version"] in at and row["ms"] <= until_ms:
            row["ingested_ms"] = at[row["version"]]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return make_scenario()


def test_by_the_definition(scenario: Scenario) -> None:
    """The oracle, by hand: 5 is behind the hole that was noted at 100, 1 of the second era behind the fork."""
    late = integrity.late_entries(scenario.changes)
    assert [(row["era"], row["version"], row["ms"]) for row in late] == [(1, 5, 50), (2, 1, 250)]
    assert [row["late"] for row in integrity.by_era(scenario, WINDOW, 0)] == [1, 1]


@pytest.mark.slow
def test_question_12_and_the_anomaly_count_the_same(scenario: Scenario, plainly: SparkSession, tmp_path: Path) -> None:
    history = as_history(plainly, str(tmp_path), scenario.changes, scenario.pulses)
    question = QUESTIONS["integrity"]
    (rows,) = answers(question, history, [WINDOW])
    assert compare(question, rows, question.of_oracle(scenario, WINDOW)) == []
    versions = sorted(row.version for row in late_entries(history, WINDOW).collect())
    (found,) = (one for one in anomalies.history_faults(scenario, WINDOW, DEFAULTS) if one["subject"] == "late")
    assert versions == found["versions"] == [1, 5]
