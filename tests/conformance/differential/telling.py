"""What a failed history says: the steps that are enough, and how to live it again."""

import os
from collections.abc import Sequence

from tests.conformance.differential.living import Difference, Twins
from tests.conformance.differential.shrinking import shrink
from tests.conformance.differential.steps import Step

LONGEST_STEP = 2000


def tell(seed: int, history: Sequence[Step], found: Difference, twins: Twins, test: str) -> str:
    short, again = shrink(history, found, twins.live)
    file, _, name = test.partition("::")
    one, other = (side.name for side in twins.sides)
    lines = [
        f"seed {seed}: {one} | {other} differ at step {found.at} of {len(history)}; {len(short)} steps are enough:",
        *(f"  {number}: {str(step)[:LONGEST_STEP]}" for number, step in enumerate(short)),
        f"then {again}",
        "again:",
        f"  ROUTEBOOK_TEST_SEEDS={seed}-{seed} .venv/bin/python -m pytest '{os.path.relpath(file)}::{name}[{seed}]'",
    ]
    return os.linesep.join(lines)
