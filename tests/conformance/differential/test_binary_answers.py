"""The same with both name servers set to answer in binary headers."""

import pytest

from tests.conformance.differential.histories import history_of
from tests.conformance.differential.line import RealSide
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import in_order
from tests.conformance.differential.telling import tell

SERIALIZE_TYPE = "ROCKETMQ"
SEEDS = in_order(range(300, 315))


@pytest.fixture(scope="module")
def twins(apache: RealSide, routebook: RealSide) -> Twins:
    return Twins(apache, routebook)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_binary_answers_are_apaches(twins: Twins, seed: int) -> None:
    history = history_of(seed)
    if found := twins.live(history):
        name = f"{__file__}::{test_binary_answers_are_apaches.__name__}"
        pytest.fail(tell(seed, history, found, twins, name), pytrace=False)
