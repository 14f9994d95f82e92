"""12 `integrity`: an entry is late if it is older than the store's clock was at the end of an earlier batch."""

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
    """A batch with only a hole and one with only a fork; the store's clock stepped back after each of them."""
    scenario = Scenario()
    scenario.registered(at=10)
    scenario.hole(3, at=10)
    set_batch_ends(scenario, 10, {2: 100})
    scenario.registered(at=50)
    scenario.registered(at=120)
    set_batch_ends(scenario, 120, {5: 130, 6: 130})
    scenario.fork(1, at=200)
    set_batch_ends(scenario, 200, {0: 300})
    scenario.registered(at=250)
    scenario.registered(at=310)
    return scenario


def set_batch_ends(scenario: Scenario, until_ms: int, at: dict[int, int]) -> None:
    """Sets the store's clock at the end of these versions' batches."""
    for row in scenario.changes:
        if row["era"] == scenario.era and row["version"] in at and row["ms"] <= until_ms:
            row["ingested_ms"] = at[row["version"]]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return make_scenario()


def test_the_oracle_finds_the_late_entries(scenario: Scenario) -> None:
    """Version 5 is late after the hole that was noted at 100, and version 1 of the second era after the fork."""
    late = integrity.late_entries(scenario.changes)
    assert [(row["era"], row["version"], row["ms"]) for row in late] == [(1, 5, 50), (2, 1, 250)]
    assert [row["late"] for row in integrity.by_era(scenario, WINDOW, 0)] == [1, 1]


@pytest.mark.slow
def test_integrity_and_the_anomaly_rule_find_the_same_late_entries(
    scenario: Scenario, small_spark: SparkSession, tmp_path: Path
) -> None:
    history = as_history(small_spark, str(tmp_path), scenario.changes, scenario.pulses)
    question = QUESTIONS["integrity"]
    (rows,) = answers(question, history, [WINDOW])
    assert compare(question, rows, question.of_oracle(scenario, WINDOW)) == []
    versions = sorted(row.version for row in late_entries(history, WINDOW).collect())
    findings = anomalies.history_faults(scenario, WINDOW, DEFAULTS)
    (found,) = (finding for finding in findings if finding["subject"] == "late")
    assert versions == found["versions"] == [1, 5]
