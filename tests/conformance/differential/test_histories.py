"""Routebook answers as Apache's name server does, except for the differences in docs/compatibility.md."""

import os

import pytest

from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.connections import RealSide
from tests.conformance.differential.histories import history_of
from tests.conformance.differential.profiles import sort_seeds
from tests.conformance.differential.report import failure_report

FIRST, LAST = map(int, os.environ.get("ROUTEBOOK_TEST_SEEDS", "0-199").split("-"))
SEEDS = sort_seeds(range(FIRST, LAST + 1))


@pytest.fixture(scope="module")
def comparison(apache: RealSide, routebook: RealSide) -> Comparison:
    return Comparison(apache, routebook)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_is_that_of_apache(comparison: Comparison, seed: int) -> None:
    history = history_of(seed)
    if difference := comparison.run(history):
        pytest.fail(
            failure_report(
                seed, history, difference, comparison, f"{__file__}::{test_every_answer_is_that_of_apache.__name__}"
            ),
            pytrace=False,
        )
