"""The shortest history that still shows a difference, as far as cutting steps finds it."""

import time
from collections.abc import Callable, Sequence

from tests.conformance.differential.living import Difference
from tests.conformance.differential.steps import Step

SHRINK_FOR_S = 60.0


def shrink(
    history: Sequence[Step], first: Difference, live: Callable[[Sequence[Step]], Difference | None]
) -> tuple[list[Step], Difference]:
    """Halves first, single steps last. Any difference will do: two at once are found one after the other."""
    began = time.monotonic()
    found, kept = first, list(history[: first.at + 1])
    size = max(len(kept) // 2, 1)
    while size and time.monotonic() - began < SHRINK_FOR_S:
        at, has_cut = 0, False
        while at < len(kept) and time.monotonic() - began < SHRINK_FOR_S:
            rest = kept[:at] + kept[at + size :]
            seen = live(rest)
            if seen is None:
                at += size
            else:
                kept, found, has_cut = rest[: seen.at + 1], seen, True
        size = size if has_cut and size == 1 else size // 2
    return kept, found
