"""The report of a failed history: the shortened history, and the command to run it again."""

import os
from collections.abc import Sequence

from tests.conformance.differential.comparison import Comparison, Difference
from tests.conformance.differential.shrinking import shrink
from tests.conformance.differential.steps import Step

LONGEST_STEP = 2000


def failure_report(
    seed: int, history: Sequence[Step], difference: Difference, comparison: Comparison, test: str
) -> str:
    short, result = shrink(history, difference, comparison.run)
    file, _, name = test.partition("::")
    one, other = (side.name for side in comparison.sides)
    lines = [
        f"seed {seed}: {one} | {other} differ at step {difference.at} of {len(history)}; {len(short)} steps suffice:",
        *(f"  {number}: {str(step)[:LONGEST_STEP]}" for number, step in enumerate(short)),
        f"result: {result}",
        "run it again:",
        f"  ROUTEBOOK_TEST_SEEDS={seed}-{seed} .venv/bin/python -m pytest '{os.path.relpath(file)}::{name}[{seed}]'",
    ]
    return os.linesep.join(lines)
