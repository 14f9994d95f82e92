"""Runs seeds on all cores and prints the failing ones: `python -m tests.simulation 2000 --from 0`.

`python -m tests.simulation --replay 42` runs one seed again, shortens it and prints its events; with `--log` also what
the processes logged. Workers of the pool have a fixed hash seed, since the order of a set may decide what happens.
"""

import argparse
import gc
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from routebook.store.namespace import ScriptSet
from tests.simulation.checker import Result
from tests.simulation.plan import Plan, draw_plan
from tests.simulation.shrinking import describe, shrink
from tests.simulation.virtual_time import current_process
from tests.simulation.world import World, quiet, run_plan

SEEDS_PER_PORTION = 25
GARBAGE_EVERY = 10
SHOWN_CHARACTERS = 300


def run_seeds(first: int, number: int, script_set: ScriptSet | None = None) -> Iterator[tuple[Plan, Result]]:
    with quiet():
        for count, seed in enumerate(range(first, first + number), 1):
            plan = draw_plan(seed)
            yield plan, run_plan(plan, script_set)
            if count % GARBAGE_EVERY == 0:
                gc.collect()


def run_portion(first: int, number: int) -> None:
    """One line for each seed that fails, then the totals. The parent reads them."""
    steps = registrations = lookups = answered = 0
    for plan, result in run_seeds(first, number):
        steps, registrations = steps + result.steps, registrations + result.registrations
        lookups, answered = lookups + result.lookups, answered + result.answered
        if result.violation:
            print(f"failed\t{plan.seed}\t{result.violation}", flush=True)
    print(f"done\t{number}\t{steps}\t{registrations}\t{lookups}\t{answered}", flush=True)


def with_fixed_hashes() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


class Totals:
    def __init__(self) -> None:
        self.seeds = self.steps = self.registrations = self.lookups = self.answered = 0
        self.failures: list[tuple[int, str]] = []

    def add(self, line: str) -> None:
        kind, *values = line.rstrip("\n").split("\t")
        if kind == "failed":
            self.failures.append((int(values[0]), values[1]))
            print(f"Seed {values[0]}: {values[1][:SHOWN_CHARACTERS]}", flush=True)
            return
        numbers = [int(value) for value in values]
        self.seeds += numbers[0]
        self.steps += numbers[1]
        self.registrations += numbers[2]
        self.lookups += numbers[3]
        self.answered += numbers[4]


def portions_of(first: int, number: int, is_filling: Callable[[], bool]) -> Iterator[tuple[int, int]]:
    """First seed and number of seeds. After the last one, whole portions as long as there is time to fill."""
    size = SEEDS_PER_PORTION * 8
    for start in range(first, first + number, size):
        yield start, min(size, first + number - start)
    start = first + number
    while is_filling():
        yield start, SEEDS_PER_PORTION
        start += SEEDS_PER_PORTION


def run_all(first: int, number: int, jobs: int, seconds: float, fill: float = 0) -> Totals:
    """Portions of seeds in processes of their own, so that no run inherits the memory of another portion."""
    totals, began, last_report = Totals(), time.monotonic(), 0.0
    portions = portions_of(first, number, lambda: time.monotonic() - began < fill)
    running: list[subprocess.Popen[str]] = []
    is_over = False
    while True:
        is_over = is_over or (seconds > 0 and time.monotonic() - began > seconds)
        while len(running) < jobs and not is_over:
            portion = next(portions, None)
            if portion is None:
                is_over = True
                break
            start, size = portion
            command = [sys.executable, "-m", "tests.simulation", "--portion", str(start), str(size)]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_fixed_hashes()))
        if not running:
            return totals
        ended = next((process for process in running if process.poll() is not None), None)
        if ended is None:
            time.sleep(0.05)
            continue
        running.remove(ended)
        assert ended.stdout is not None
        for line in ended.stdout:
            totals.add(line)
        if ended.returncode:
            raise SystemExit(f"A portion ended with {ended.returncode}.")
        if time.monotonic() - last_report > 10:
            last_report = time.monotonic()
            elapsed = last_report - began
            print(f"{totals.seeds:>7} seeds, {len(totals.failures)} failed, {elapsed:.0f} s", flush=True)


def replay(seed: int, *, log: bool) -> int:
    with quiet():
        plan = draw_plan(seed)
        result = run_plan(plan)
        if result.violation is None:
            print(f"Seed {seed} violates nothing.", *plan.lines(), sep="\n")
            return 0
        plan, result = shrink(plan, result, run_plan)
    print(describe(plan, result))
    if log:
        _run_with_log(plan)
    return 1


def _run_with_log(plan: Plan) -> None:
    world = World(plan)

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            process = current_process()
            return f"{world.loop.now:8.3f} {process.name if process else '':10} {record.getMessage()}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Formatter())
    log = logging.getLogger("routebook")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    world.run()
    world.drop_tasks()
    log.removeHandler(handler)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Deterministic simulation")
    parser.add_argument("seeds", nargs="?", type=int, default=2000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=0, help="start no further seeds after this time")
    parser.add_argument("--fill", type=float, default=0, help="run more seeds than these until this time, in seconds")
    parser.add_argument("--replay", type=int, help="run this seed alone, shorten it and print its events")
    parser.add_argument("--log", action="store_true", help="with --replay: print what the processes logged")
    parser.add_argument("--portion", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.portion:
        run_portion(*options.portion)
        return 0
    if options.replay is not None:
        if os.environ.get("PYTHONHASHSEED") != "0":
            os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], with_fixed_hashes())
        return replay(options.replay, log=options.log)
    began = time.monotonic()
    totals = run_all(options.first, options.seeds, options.jobs, options.seconds, options.fill)
    print(
        f"{totals.seeds} seeds from {options.first} in {time.monotonic() - began:.0f} s: "
        f"{totals.registrations} accepted registrations, {totals.answered} of {totals.lookups} lookups answered, "
        f"{totals.steps} steps, {len(totals.failures)} seeds failed."
    )
    for seed, _ in sorted(totals.failures):
        print(f"  replay: .venv/bin/python -m tests.simulation --replay {seed}")
    return 1 if totals.failures or totals.seeds == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
