"""The transforms and the oracle, written apart from the same text, answer random histories alike.

A case is a cluster; hundreds of them share one history, which costs Spark one job a question.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.history import History, Window
from tests.pipeline.questions import QUESTIONS, Question, answers, as_history, compare
from tests.pipeline.random_histories import CALM, TROUBLED, RandomHistory, random_history, random_window

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
)
"""Asked at each change. Planning the others takes Spark minutes; they are asked with three windows in the slow lane."""


class QuestionInput:
    """A random history, as the transforms take it and as the oracle does."""

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
def asked(plainly: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> QuestionInput:
    history = random_history(1, clusters=CASES, steps=CASES * STEPS_A_CASE, troubles=TROUBLED)
    return QuestionInput(plainly, tmp_path_factory.mktemp("asked"), history, 1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in QUESTIONS]
)
def test_random_histories_have_the_same_answer(name: str, asked: QuestionInput) -> None:
    assert not asked.differences(QUESTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_thousands_of_random_histories_have_the_same_answers(seed: int, plainly: SparkSession, tmp_path: Path) -> None:
    troubles = CALM if seed % 3 == 0 else TROUBLED
    history = random_history(seed, clusters=CASES, steps=CASES * STEPS_A_CASE, troubles=troubles)
    asked = QuestionInput(plainly, tmp_path, history, WINDOWS)
    different = {name: asked.differences(question) for name, question in QUESTIONS.items()}
    assert not {name: lines for name, lines in different.items() if lines}
