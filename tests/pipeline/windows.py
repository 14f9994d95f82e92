"""Random windows over a history."""

import random

from routebook_pipeline.history import DAY_MS, HOUR_MS, Window
from tests.pipeline.rows import Row


def random_window(rng: random.Random, changes: list[Row]) -> Window:
    """Long and short ones, on entries and beside them, before everything and after it."""
    first, last = changes[0]["ms"], changes[-1]["ms"]
    at, other = sorted((rng.choice(changes)["ms"], rng.choice(changes)["ms"]))
    beside = rng.randrange(first, last + 1)
    return rng.choices(
        (
            Window(at, other + 1),
            Window(at, max(at + 1, other)),
            Window(min(at, beside), max(at, beside) + 1),
            Window(at, at + 1),
            Window(at - 1, at),
            Window(first - DAY_MS, first),
            Window(last + 1, last + 2 * DAY_MS),
            Window(first - HOUR_MS, last + HOUR_MS),
        ),
        (30, 20, 30, 4, 4, 2, 5, 5),
    )[0]
