"""The simulation finds faults that are put in on purpose."""

import pytest

from tests.simulation.mutants import MOST_SEEDS, MUTANTS, find

EASY = ("touch-revision", "pause")
MEASURED = (
    *("fence", "touch-revision", "late-verdict", "no-recovery", "identity", "pause", "stamps", "lost-tail", "reopen"),
    *("stale-base", "lease-after-clock"),
)
"""Those in the table of docs/simulation.md."""


@pytest.mark.parametrize("name", EASY)
def test_a_fault_is_found_soon(name: str) -> None:
    assert find(name, 300).seeds > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_each_fault_is_found(name: str) -> None:
    assert find(name, MOST_SEEDS).seeds, MUTANTS[name].text
