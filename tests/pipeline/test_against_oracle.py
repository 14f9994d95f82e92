"""The transforms and the oracle, written independently from the same text, give the same answers for random histories.

Every cluster is a case. Hundreds of them share one history, so that every question costs Spark only one job.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.history import History, Window
from tests.pipeline.questions import QUESTIONS, Question, answers, as_history, compare
from tests.pipeline.random_histories import FEW_FAULTS, MANY_FAULTS, RandomHistory, random_history, random_window

CASES = 300
STEPS_A_CASE = 20
WINDOWS = 3
OFTEN = (
    "route_at",
    "availability by seat",
    "failures by seat",
    "flaps",
    "heartbeat_gaps by cluster",
    "churn",
    "failovers",
    "integrity",
    "events",
    "events of a topic",
)
"""The questions in the default run. The others take minutes to plan in Spark and are tested in the slow run."""


class Comparison:
    """A random history, for the transforms and for the oracle."""

    def __init__(self, spark: SparkSession, folder: Path, random_: RandomHistory, windows: int) -> None:
        self.random = random_
        self.history: History = as_history(spark, str(folder / "lake"), random_.changes, random_.pulses)
        chosen = random.Random(random_.seed)
        self.windows: list[Window] = [random_window(chosen, random_.changes) for _ in range(windows)]

    def differences(self, question: Question) -> list[str]:
        found = []
        for window, rows in zip(self.windows, answers(question, self.history, self.windows), strict=True):
            different = compare(question, rows, question.of_oracle(self.random, window))
            found += [f"seed {self.random.seed}, {window}: {line}" for line in different]
        return found


@pytest.fixture(scope="module")
def comparison(small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    history = random_history(1, clusters=CASES, steps=CASES * STEPS_A_CASE, fault_rates=MANY_FAULTS)
    return Comparison(small_spark, tmp_path_factory.mktemp("compared"), history, 1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in QUESTIONS]
)
def test_transforms_and_oracle_agree_on_a_random_history(name: str, comparison: Comparison) -> None:
    assert not comparison.differences(QUESTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_transforms_and_oracle_agree_on_many_random_histories(
    seed: int, small_spark: SparkSession, tmp_path: Path
) -> None:
    fault_rates = FEW_FAULTS if seed % 3 == 0 else MANY_FAULTS
    history = random_history(seed, clusters=CASES, steps=CASES * STEPS_A_CASE, fault_rates=fault_rates)
    comparison = Comparison(small_spark, tmp_path, history, WINDOWS)
    different = {name: comparison.differences(question) for name, question in QUESTIONS.items()}
    assert not {name: lines for name, lines in different.items() if lines}
