"""Makes a failing plan short: events are left out as long as the same invariant is violated."""

from collections.abc import Callable

from tests.simulation.checker import Result
from tests.simulation.plan import Plan

MAX_RUNS = 150


def shrink(plan: Plan, result: Result, run: Callable[[Plan], Result]) -> tuple[Plan, Result]:
    """A plan from which no single event can be left out, and its result."""
    assert result.violation is not None
    runs, number = 0, len(plan.events) - 1
    while number >= 0 and runs < MAX_RUNS:
        shorter = plan.without(number)
        attempt = run(shorter)
        runs += 1
        if attempt.violation and attempt.violation.invariant == result.violation.invariant:
            plan, result = shorter, attempt
            number = len(plan.events) - 1
        else:
            number -= 1
    return plan, result


def describe(plan: Plan, result: Result) -> str:
    return "\n".join([*plan.lines(), str(result.violation)])
