"""Two workers behind one address answer as one name server, whichever worker a connection has."""

import pytest

from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.connections import RealSide, SeveralWorkers
from tests.conformance.differential.histories import history_of
from tests.conformance.differential.profiles import sort_seeds
from tests.conformance.differential.report import failure_report

SEEDS = sort_seeds(range(400, 420))


@pytest.fixture(scope="module")
def comparison(apache: RealSide, two_workers: SeveralWorkers) -> Comparison:
    return Comparison(apache, two_workers)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_two_workers_answer_as_one_name_server(comparison: Comparison, seed: int) -> None:
    history = history_of(seed)
    if difference := comparison.run(history):
        name = f"{__file__}::{test_two_workers_answer_as_one_name_server.__name__}"
        pytest.fail(failure_report(seed, history, difference, comparison, name), pytrace=False)
