"""Makes a failing plan short: events and brokers are left out as long as the same invariant is violated."""

from collections.abc import Callable

from tests.simulation.checker import Result
from tests.simulation.plan import Plan

MAX_RUNS = 150


def shrink(plan: Plan, result: Result, run: Callable[[Plan], Result]) -> tuple[Plan, Result]:
    """A plan from which no single event and no broker that is not named can be left out, and its result."""
    assert result.violation is not None
    invariant, runs, number = result.violation.invariant, 0, 0
    while runs < MAX_RUNS:
        shorter = [*plan.with_one_event_less(), *plan.with_one_broker_less()]
        if number == len(shorter):
            break
        attempt = run(shorter[number])
        runs += 1
        if attempt.violation and attempt.violation.invariant == invariant:
            plan, result, number = shorter[number], attempt, 0
        else:
            number += 1
    return plan, result


def describe(plan: Plan, result: Result) -> str:
    return "\n".join([*plan.lines(), str(result.violation)])
