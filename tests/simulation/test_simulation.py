"""The simulation itself: equal seeds give equal runs, and some seeds run with every test."""

import re
import subprocess
import sys

from tests.simulation.__main__ import run_seeds, with_fixed_hashes
from tests.simulation.plan import SENTENCES, Event, Plan, draw_plan
from tests.simulation.world import HANDLERS, quiet, run_plan

SEEDS = 20


def test_the_first_seeds_violate_nothing() -> None:
    answered = lookups = 0
    for plan, result in run_seeds(0, SEEDS):
        assert result.violation is None, f"seed {plan.seed}: {result.violation}"
        assert result.registrations > 20
        answered, lookups = answered + result.answered, lookups + result.lookups
    assert answered > 0.8 * lookups


def test_a_seed_gives_the_same_run_again() -> None:
    first = [result for _, result in run_seeds(100, 5)]
    assert [result for _, result in run_seeds(100, 5)] == first
    assert len({result.trace for result in first}) == 5


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    script = "from tests.simulation.__main__ import run_seeds; print([r.trace for _, r in run_seeds(200, 4)])"
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=with_fixed_hashes(), check=True
        )
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert re.fullmatch(r"\[\d+, \d+, \d+, \d+\]\n", runs[0].stdout)


def test_each_kind_of_event_has_a_sentence_and_is_drawn() -> None:
    drawn = {event.kind for seed in range(300) for event in draw_plan(seed).events}
    assert drawn == set(SENTENCES) == set(HANDLERS)


def test_a_plan_reads_as_sentences() -> None:
    event = Event(12.3, "kill-worker", {"worker": "worker-2", "seconds": 4.0})
    assert Plan(1, 2, (("broker-a", 0), ("broker-a", 1)), (event,)).lines() == [
        "2 workers and 2 brokers: broker-a (ids 0, 1).",
        "At  12.3 s worker-2 is killed, and started again 4.0 s later.",
    ]


def test_a_fleet_without_events_is_served_all_the_time() -> None:
    plan = Plan(7, 3, (("broker-a", 0), ("broker-b", 0)), ())
    with quiet():
        result = run_plan(plan)
    assert result.violation is None
    assert result.answered > 0.97 * result.lookups  # some come before the first registration
