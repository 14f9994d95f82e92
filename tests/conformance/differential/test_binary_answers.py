"""Routebook answers as Apache's name server does if both are set to binary headers."""

import pytest

from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.connections import RealSide
from tests.conformance.differential.histories import history_of
from tests.conformance.differential.profiles import sort_seeds
from tests.conformance.differential.report import failure_report

SERIALIZE_TYPE = "ROCKETMQ"
SEEDS = sort_seeds(range(300, 315))


@pytest.fixture(scope="module")
def comparison(apache: RealSide, routebook: RealSide) -> Comparison:
    return Comparison(apache, routebook)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_binary_answers_are_those_of_apache(comparison: Comparison, seed: int) -> None:
    history = history_of(seed)
    if difference := comparison.run(history):
        name = f"{__file__}::{test_binary_answers_are_those_of_apache.__name__}"
        pytest.fail(failure_report(seed, history, difference, comparison, name), pytrace=False)
