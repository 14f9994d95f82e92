"""The reference of the property tests, held against Apache's name server: what judges the scripts is judged itself."""

import pytest

from tests.conformance.differential.histories import history_of
from tests.conformance.differential.line import RealSide
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import in_order, mood_of
from tests.conformance.differential.plain_side import PlainSide
from tests.conformance.differential.telling import tell

SEEDS = in_order(seed for seed in range(1000, 1050) if not mood_of(seed).losing)


@pytest.fixture(scope="module")
def twins(apache: RealSide) -> Twins:
    return Twins(apache, PlainSide())


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_the_plain_rules_are_apaches(twins: Twins, seed: int) -> None:
    history = history_of(seed)
    if found := twins.live(history):
        pytest.fail(
            tell(seed, history, found, twins, f"{__file__}::{test_the_plain_rules_are_apaches.__name__}"), pytrace=False
        )
