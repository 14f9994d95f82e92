"""Every answer of Routebook is Apache's, but for what docs/compatibility.md lists."""

import os

import pytest

from tests.conformance.differential.histories import history_of
from tests.conformance.differential.line import RealSide
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import in_order
from tests.conformance.differential.telling import tell

FIRST, LAST = map(int, os.environ.get("ROUTEBOOK_TEST_SEEDS", "0-199").split("-"))
SEEDS = in_order(range(FIRST, LAST + 1))


@pytest.fixture(scope="module")
def twins(apache: RealSide, routebook: RealSide) -> Twins:
    return Twins(apache, routebook)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_is_apaches(twins: Twins, seed: int) -> None:
    history = history_of(seed)
    if found := twins.live(history):
        pytest.fail(
            tell(seed, history, found, twins, f"{__file__}::{test_every_answer_is_apaches.__name__}"), pytrace=False
        )
