"""Shortens a history by removing steps, as long as a difference remains."""

import time
from collections.abc import Callable, Sequence

from tests.conformance.differential.comparison import Difference
from tests.conformance.differential.steps import Step

SHRINK_FOR_S = 60.0


def shrink(
    history: Sequence[Step], first: Difference, run: Callable[[Sequence[Step]], Difference | None]
) -> tuple[list[Step], Difference]:
    """Removes halves first and single steps last. Any difference counts: of two, the second one is found later."""
    began = time.monotonic()
    difference, kept = first, list(history[: first.at + 1])
    size = max(len(kept) // 2, 1)
    while size and time.monotonic() - began < SHRINK_FOR_S:
        at, has_cut = 0, False
        while at < len(kept) and time.monotonic() - began < SHRINK_FOR_S:
            rest = kept[:at] + kept[at + size :]
            result = run(rest)
            if result is None:
                at += size
            else:
                kept, difference, has_cut = rest[: result.at + 1], result, True
        size = size if has_cut and size == 1 else size // 2
    return kept, difference
