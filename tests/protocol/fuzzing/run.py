"""Checks numbered inputs and counts the results."""

import gc
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.protocol.fuzzing.properties import CHECKS

TURNS = [name for name, (_, turns) in CHECKS.items() for _ in range(turns)]
WARM_UP = 10_000
"""Memory is first measured after this many inputs, when caches are full."""


class FoundError(AssertionError):
    """An input violates a property. The message says how to reproduce it."""


@dataclass
class Target:
    inputs: int = 0
    accepted: int = 0
    worst_ms: float = 0.0
    worst_input: int = 0


@dataclass
class Report:
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    work_seconds: float = 0.0
    targets: dict[str, Target] = field(default_factory=lambda: {name: Target() for name in CHECKS})
    resident_before: int = 0
    resident_after: int = 0

    @property
    def growth_bytes(self) -> int:
        return self.resident_after - self.resident_before


def check_one(seed: int, number: int) -> tuple[Target, str]:
    name = TURNS[number % len(TURNS)]
    check, _ = CHECKS[name]
    start = time.thread_time()
    try:
        accepted = check(random.Random(f"{seed}/{number}"))
    except Exception as error:
        raise FoundError(
            f"Input {number} of {name}: {type(error).__name__}: {str(error)[:500]}\n"
            f"Again: python -m tests.protocol.fuzzing --seed {seed} --only {number}"
        ) from error
    return Target(1, accepted, (time.thread_time() - start) * 1e3, number), name


def fuzz(
    seed: int, inputs: int, *, seconds: float | None = None, every_thousand: Callable[[], object] = bool
) -> Report:
    """Checks `inputs` inputs, or as many of them as `seconds` allow."""
    report = Report(seed)
    start, work_start = time.monotonic(), time.thread_time()
    warm = min(WARM_UP, inputs // 2)
    for number in range(inputs):
        if number % 1000 == 0:
            every_thousand()
        if number == warm:
            report.resident_before = resident_bytes()
        one, name = check_one(seed, number)
        target = report.targets[name]
        target.inputs += 1
        target.accepted += one.accepted
        if one.worst_ms > target.worst_ms:
            target.worst_ms, target.worst_input = one.worst_ms, number
        report.inputs += 1
        if seconds is not None and number > warm and time.monotonic() - start > seconds:
            break
    report.seconds, report.work_seconds = time.monotonic() - start, time.thread_time() - work_start
    report.resident_after = resident_bytes()
    return report


def resident_bytes() -> int:
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
