"""The comparison finds planted faults of the reference model and shortens their histories. No Java is needed."""

import pytest

from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.frames import Answer, Request
from tests.conformance.differential.histories import STEPS, history_of
from tests.conformance.differential.profiles import profile_of
from tests.conformance.differential.reference_side import ReferenceSide
from tests.conformance.differential.shrinking import shrink

WITHOUT_LOSSES = [seed for seed in range(12) if not profile_of(seed).losing]


class KeepsWritePermission(ReferenceSide):
    """Removing the write permission has no effect."""

    def answer(self, request: Request) -> Answer:
        answer = super().answer(request)
        if request.code == 205:
            broker = str((request.ext or {}).get("brokerName"))
            self.registry.set_write_permission(broker, writable=True)
        return answer


class ChangesBrokerId(ReferenceSide):
    """One broker id in the cluster information is wrong."""

    def answer(self, request: Request) -> Answer:
        answer = super().answer(request)
        if request.code != 106:
            return answer
        return Answer(answer.code, remark=answer.remark, body=answer.body.replace(b'{0:"127.0.0.2', b'{7:"127.0.0.2'))


def test_a_seed_always_yields_the_same_history() -> None:
    assert [str(step) for step in history_of(7)] == [str(step) for step in history_of(7)]
    assert len(history_of(7)) == STEPS


def test_two_reference_models_give_the_same_answers() -> None:
    comparison = Comparison(ReferenceSide(), ReferenceSide())
    assert [comparison.run(history_of(seed)) for seed in WITHOUT_LOSSES] == [None] * len(WITHOUT_LOSSES)


@pytest.mark.parametrize(("faulty", "most_steps"), [(KeepsWritePermission, 2), (ChangesBrokerId, 1)])
def test_a_planted_fault_is_found_and_its_history_is_shortened(faulty: type[ReferenceSide], most_steps: int) -> None:
    comparison = Comparison(ReferenceSide(), faulty())
    results = {seed: comparison.run(history_of(seed)) for seed in WITHOUT_LOSSES}
    seed, first = next((seed, difference) for seed, difference in results.items() if difference)
    short, difference = shrink(history_of(seed), first, comparison.run)
    assert len(short) <= most_steps
    assert difference.fields
