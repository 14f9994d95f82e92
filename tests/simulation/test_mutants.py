"""The simulation finds faults that are put in on purpose."""

import pytest

from tests.simulation.mutants import MOST_SEEDS, MUTANTS, find, shortest_script
from tests.simulation.plan import draw_plan

EASY = ("touch-revision", "pause")


@pytest.mark.parametrize("name", EASY)
def test_a_fault_is_found_soon(name: str) -> None:
    assert find(name, 300).seeds > 0


def test_a_failing_seed_becomes_a_short_script() -> None:
    finding = find("touch-revision", 300)
    plan = draw_plan(finding.seed)
    sentences = shortest_script("touch-revision", finding.seed).splitlines()
    assert sentences[0].startswith(f"{plan.workers} workers and ")
    assert sentences[-1].endswith(".")
    assert f"{finding.invariant} is violated" in sentences[-1]
    assert len(sentences) <= len(plan.lines()) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_is_found(name: str) -> None:
    assert find(name, MOST_SEEDS).seeds, MUTANTS[name].text
