"""Faults put into the service on purpose, to show that the simulation finds them.

`python -m tests.simulation.mutants` runs seeds with each of them until an invariant is violated, and prints a table.
Most change the text of a Lua script; the others replace a method.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from routebook.background.history_upkeep import HistoryUpkeep
from routebook.registry.sessions import Sessions
from routebook.replica import feed, load
from routebook.replica.feed import Feed
from routebook.replica.load import Position
from routebook.replica.recovery import Recovery
from routebook.store.workers import HistoryHead
from tests.simulation.__main__ import run_seeds, with_fixed_hashes
from tests.simulation.plan import draw_plan
from tests.simulation.reader import HistoryReader
from tests.simulation.shrinking import describe, shrink
from tests.simulation.world import quiet, run_plan, scripts
from tests.support.scripts import with_replaced_text

MOST_SEEDS: Final = 3000


@dataclass(frozen=True, slots=True)
class Mutant:
    text: str
    lua: tuple[str, str] = ("", "")
    """A text in the scripts, and what takes its place."""
    methods: Mapping[tuple[Any, str], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    seeds: int
    """How many seeds ran until one failed; 0 if none did."""
    invariant: str
    seed: int


async def _nothing(*_: object) -> None:
    pass


async def _true(*_: object) -> bool:
    return True


_is_last_entry_stored = Feed._is_last_entry_stored


async def _is_stored_for_certain(self: Feed, head: HistoryHead) -> bool:
    is_stored = await _is_last_entry_stored(self, head)
    self._is_unverified = False
    return is_stored


def _swap_at_once(self: Feed, table: Any, position: Position) -> Iterator[set[str]]:
    return self._swap(table, position)


MUTANTS: Final[dict[str, Mutant]] = {
    "fence": Mutant(
        "scripts of a former leader are accepted",
        lua=("return redis.call('GET', table_key('leader')) == lease", "return true"),
    ),
    "late-expiry": Mutant(
        "an expiry checks neither the incarnation nor the deadline again",
        lua=("return deadline and deadline < deadline_now and (instance.inc or '') == incarnation", "return deadline"),
    ),
    "late-verdict": Mutant(
        "a lost connection removes the broker although it is connected again",
        lua=("if has_session(instance_name, current) or not is_loss_pending", "if false and not is_loss_pending"),
    ),
    "touch-revision": Mutant(
        "a repeated registration is accepted although its group has changed",
        lua=("known[3] == revision and ", ""),
    ),
    "stale-base": Mutant(
        "a difference is applied to another state than the one it was computed for",
        lua=("if base ~= history .. ':' .. (group.rev or '0') or not is_staged then", "if not is_staged then"),
    ),
    "stamps": Mutant(
        "closing a session ignores its stamp, so a late close ends a new session",
        lua=("if held_stamp and tonumber(held_stamp) <= stamp then", "if held_stamp then"),
    ),
    "pause": Mutant(
        "the deadline clock does not stop during outages",
        lua=("local PAUSE_AFTER_MS = 5000", "local PAUSE_AFTER_MS = 5000000000000"),
    ),
    "lease-after-clock": Mutant(
        "a lease outlives its leader when the clock is set back",
        lua=("if redis.call('PTTL', table_key('leader')) > tonumber(lease_ms) then", "if false then"),
    ),
    "identity": Mutant(
        "the identity and history of the store are not compared",
        methods={(Position, "is_same_history"): lambda *_: True, (Feed, "_is_same_history"): lambda *_: True},
    ),
    "lost-tail": Mutant(
        "the loss of the last changes is not noticed",
        methods={(Feed, "_is_last_entry_stored"): _true},
    ),
    "gaps": Mutant(
        "missing entries of the history are not noticed",
        methods={
            (feed, "check_contiguous"): lambda *_: None,
            (load, "check_contiguous"): lambda *_: None,
            (Feed, "_compare_with_head"): _nothing,
            (Feed, "_is_last_entry_stored"): _is_stored_for_certain,
        },
    ),
    "trimming": Mutant(
        "the history is trimmed without a baseline for readers that have missed entries and request none",
        methods={
            (HistoryUpkeep, "_request_baseline_before_loss"): _nothing,
            (HistoryReader, "requests_baseline"): False,
        },
    ),
    "reopen": Mutant(
        "sessions are not compared after a loss",
        methods={(Sessions, "reopen"): lambda *_: None},
    ),
    "no-doubt": Mutant(
        "an unknown topic is reported as such while the store is out of reach",
        methods={(Feed, "stale_ms"): lambda *_: 0, (Feed, "current"): property(lambda _: True)},
    ),
    "recovery-of-seats": Mutant(
        "after a loss, a recovery ends when all seats are back, without waiting for topics",
        methods={(Recovery, "_carries_topics"): lambda *_: False},
    ),
    "no-recovery": Mutant(
        "after a loss, readers are shown only what the store has",
        methods={(Feed, "replace"): _swap_at_once},
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[Any]:
    """The scripts to run with. The replaced methods are put back at the end."""
    mutant = MUTANTS[name]
    with ExitStack() as stack:
        for (owner, attribute), value in mutant.methods.items():
            stack.enter_context(patch.object(owner, attribute, value))
        yield with_replaced_text(scripts(), *mutant.lua) if mutant.lua[0] else scripts()


def find(name: str, most: int) -> Finding:
    with mutated(name) as script_set:
        for count, (plan, result) in enumerate(run_seeds(0, most, script_set), 1):
            if result.violation:
                return Finding(count, result.violation.invariant, plan.seed)
    return Finding(0, "", 0)


def shortest_script(name: str, seed: int) -> str:
    """The events that are enough for the fault to be found."""
    with mutated(name) as script_set, quiet():
        plan = draw_plan(seed)
        return describe(*shrink(plan, run_plan(plan, script_set), lambda shorter: run_plan(shorter, script_set)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them only")
    parser.add_argument("--most", type=int, default=MOST_SEEDS, help="seeds for each")
    parser.add_argument("--script", action="store_true", help="print the shortest script of events for each, too")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.simulation.mutants", *sys.argv[1:]]
        return subprocess.run(command, env=with_fixed_hashes(), check=False).returncode
    missed = 0
    print("| fault put in | found after seeds | by |\n|---|---|---|")
    for name in options.names or MUTANTS:
        finding = find(name, options.most)
        missed += not finding.seeds
        found = f"{finding.seeds} | {finding.invariant}" if finding.seeds else f"not within {options.most} | "
        print(f"| {MUTANTS[name].text} | {found} |", flush=True)
        if options.script and finding.seeds:
            print(shortest_script(name, finding.seed), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
