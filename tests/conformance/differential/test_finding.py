"""That a difference is found and told shortly: tried on the plain rules with a fault planted. Needs no Java."""

import pytest

from tests.conformance.differential.frames import Answer, Request
from tests.conformance.differential.histories import STEPS, history_of
from tests.conformance.differential.living import Twins
from tests.conformance.differential.moods import mood_of
from tests.conformance.differential.plain_side import PlainSide
from tests.conformance.differential.shrinking import shrink

QUIET = [seed for seed in range(12) if not mood_of(seed).losing]


class ForgetsToWipe(PlainSide):
    """A wiped permission stays as it was."""

    def answer(self, request: Request) -> Answer:
        told = super().answer(request)
        if request.code == 205:
            broker = str((request.ext or {}).get("brokerName"))
            self.registry.set_write_permission(broker, writable=True)
        return told


class SaysZero(PlainSide):
    """One number in a listing of many is another."""

    def answer(self, request: Request) -> Answer:
        told = super().answer(request)
        if request.code != 106:
            return told
        return Answer(told.code, remark=told.remark, body=told.body.replace(b'{0:"127.0.0.2', b'{7:"127.0.0.2'))


def test_a_seed_is_a_history() -> None:
    assert [str(step) for step in history_of(7)] == [str(step) for step in history_of(7)]
    assert len(history_of(7)) == STEPS


def test_the_rules_agree_with_themselves() -> None:
    twins = Twins(PlainSide(), PlainSide())
    assert [twins.live(history_of(seed)) for seed in QUIET] == [None] * len(QUIET)


@pytest.mark.parametrize(("faulty", "most_steps"), [(ForgetsToWipe, 2), (SaysZero, 1)])
def test_a_planted_fault_is_found_and_told_in_a_few_steps(faulty: type[PlainSide], most_steps: int) -> None:
    twins = Twins(PlainSide(), faulty())
    found = {seed: twins.live(history_of(seed)) for seed in QUIET}
    seed, first = next((seed, difference) for seed, difference in found.items() if difference)
    short, difference = shrink(history_of(seed), first, twins.live)
    assert len(short) <= most_steps
    assert difference.found
