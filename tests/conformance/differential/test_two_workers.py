"""Two workers behind one address are one name server: no connection can tell which of them it has."""

import pytest

from tests.conformance.differential.histories import history_of
from tests.conformance.differential.line import RealSide, SeveralWorkers
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import in_order
from tests.conformance.differential.telling import tell

SEEDS = in_order(range(400, 420))


@pytest.fixture(scope="module")
def twins(apache: RealSide, two_workers: SeveralWorkers) -> Twins:
    return Twins(apache, two_workers)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_two_workers_answer_as_one(twins: Twins, seed: int) -> None:
    history = history_of(seed)
    if found := twins.live(history):
        name = f"{__file__}::{test_two_workers_answer_as_one.__name__}"
        pytest.fail(tell(seed, history, found, twins, name), pytrace=False)
