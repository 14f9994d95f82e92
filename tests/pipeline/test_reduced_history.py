"""The rows of a snapshot and the entries after it give the same answers as the whole history.

Spark computes the reduced history and the oracle answers the questions, so that a question costs no Spark job.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.history import Instant, Window
from routebook_pipeline.transforms.snapshots import reduce
from tests.pipeline.oracle import routes
from tests.pipeline.oracle.history_rows import HistoryRows, ReadRows, Row
from tests.pipeline.questions import QUESTIONS, as_history, compare
from tests.pipeline.random_histories import MANY_FAULTS, random_history

pytestmark = pytest.mark.slow

CUTS = 2


class Reduced:
    """A random history that is cut in two, and the reduced first part."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int, share: float) -> None:
        self.random = random_history(seed, clusters=100, steps=2000, fault_rates=MANY_FAULTS)
        self.frame = as_history(spark, str(folder), self.random.changes, self.random.pulses).changes
        entries = [row for row in self.random.changes if row["row"] == 0]
        self.cut: Row = entries[int(share * len(entries))]
        self.later = [row for row in self.random.changes if row["ord"] > self.cut["ord"]]
        first = [row.asDict() for row in reduce(self.frame.where(f"ord <= {self.cut['ord']}")).collect()]
        assert len(first) < len(self.random.changes) - len(self.later)
        self.rows: tuple[HistoryRows, HistoryRows] = (
            self.random,
            ReadRows([*first, *self.later], self.random.pulses),
        )
        """The whole history, and the reduced first part with the second part."""

    def windows(self) -> list[Window]:
        chosen = random.Random(self.random.seed)
        begin, end = self.cut["ms"] + 1, self.random.changes[-1]["ms"] + 1
        inside = sorted(chosen.randrange(begin, end + 1) for _ in range(2))
        return [
            Window(begin, end + 1),
            Window(begin, begin + 1),
            Window(inside[0], inside[1] + 1),
            Window(end, end + 9),
        ]


@pytest.fixture(scope="module", params=range(CUTS))
def reduced(
    request: pytest.FixtureRequest, small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Reduced:
    return Reduced(small_spark, tmp_path_factory.mktemp("reduced"), 200 + request.param, (0.4, 0.8)[request.param % 2])


def test_questions_about_later_windows_have_the_same_answers(reduced: Reduced) -> None:
    whole, short = reduced.rows
    for name, question in QUESTIONS.items():
        for window in reduced.windows():
            found, expected = question.of_oracle(short, window), question.of_oracle(whole, window)
            if question.looks_back:
                found, expected = ([row for row in rows if row["rule"] != "churn-spike"] for rows in (found, expected))
            assert not compare(question, found, expected), f"{name}, {window}, seed {reduced.random.seed}"


def test_later_routes_are_the_same_at_every_entry(reduced: Reduced) -> None:
    whole, short = reduced.rows
    ords = sorted({row["ord"] for row in reduced.later})
    for ord_ in [reduced.cut["ord"], *random.Random(1).sample(ords, 12)]:
        at = Instant(ord=ord_)
        assert not compare(QUESTIONS["route_at"], routes.routes_at(short, at), routes.routes_at(whole, at)), ord_


def test_reducing_in_two_steps_equals_reducing_at_once(
    reduced: Reduced, small_spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of the first step are read from files, like a snapshot: a plan of both steps needs too much memory."""
    _, short = reduced.rows
    first_reduced = as_history(small_spark, str(tmp_path), short.changes, short.pulses).changes
    assert _places(reduce(first_reduced)) == _places(reduce(reduced.frame))


def _places(rows: DataFrame) -> set[tuple[int, int]]:
    return {(row["ord"], row["row"]) for row in rows.select("ord", "row").collect()}
