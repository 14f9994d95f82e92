"""The reference model of the property tests answers as Apache's name server does."""

import pytest

from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.connections import RealSide
from tests.conformance.differential.histories import history_of
from tests.conformance.differential.profiles import profile_of, sort_seeds
from tests.conformance.differential.reference_side import ReferenceSide
from tests.conformance.differential.report import failure_report

SEEDS = sort_seeds(seed for seed in range(1000, 1050) if not profile_of(seed).losing)


@pytest.fixture(scope="module")
def comparison(apache: RealSide) -> Comparison:
    return Comparison(apache, ReferenceSide())


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_model_answers_as_apache(comparison: Comparison, seed: int) -> None:
    history = history_of(seed)
    if difference := comparison.run(history):
        pytest.fail(
            failure_report(
                seed,
                history,
                difference,
                comparison,
                f"{__file__}::{test_the_reference_model_answers_as_apache.__name__}",
            ),
            pytrace=False,
        )
