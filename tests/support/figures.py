"""Figures that tests measure: compared with what is required, printed, and collected by `make chaos`.

    def test_…(figure: Figures) -> None:
        figure("writes work again after", took_s, "s", at_most=15)

`make chaos` names a file in `ROUTEBOOK_TEST_FIGURES`; each figure becomes one line of JSON in it. A figure that misses
its limit fails the test, after it was written. It may come with the reason why it misses it, which is shown beside it.
"""

import json
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "ROUTEBOOK_TEST_FIGURES"
SEED_VARIABLE: Final = "ROUTEBOOK_TEST_SEED"


@dataclass(frozen=True)
class Figure:
    node: str
    """The pytest node that measured it."""
    name: str
    asked: str
    """The limit with its unit; empty if the figure is only reported."""
    seen: str
    holds: bool
    seed: int | None = None
    reason: str = ""
    """Why it misses its limit here, in numbers."""

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}{f' (asked: {self.asked})' if self.asked else ''}{self.explanation}"

    @property
    def explanation(self) -> str:
        return "" if self.holds or not self.reason else f", because {self.reason}"


class Figures:
    """Reports the figures of one test. `seed` is that of the test's random choices, if it makes any."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._seed: int | None = None

    def __call__(
        self,
        name: str,
        seen: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        exactly: float | None = None,
        reason: str = "",
    ) -> None:
        """Without a limit, the figure is only reported. `reason`: why it misses the limit, shown if it does."""
        limits = [
            (f"{sign} {_text(limit, unit)}".strip(), holds)
            for sign, limit, holds in (
                ("≤", at_most, at_most is None or seen <= at_most),
                ("≥", at_least, at_least is None or seen >= at_least),
                ("", exactly, exactly is None or seen == exactly),
            )
            if limit is not None
        ]
        holds = all(holds for _, holds in limits)
        asked = ", ".join(text for text, _ in limits)
        self._report(Figure(self._node, name, asked, _text(seen, unit), holds, self._seed, reason))

    def fact(self, name: str, seen: str) -> None:
        """Something seen that is not a number."""
        self._report(Figure(self._node, name, "", seen, True, self._seed))

    def choose_seed(self) -> int:
        """The seed of this run: the one that is to be replayed, or a new one. A failure shows it."""
        given = os.environ.get(SEED_VARIABLE)
        self._seed = int(given) if given else random.SystemRandom().randrange(1_000_000)
        print(f"seed {self._seed}; to repeat: {SEED_VARIABLE}={self._seed}")
        return self._seed

    def _report(self, figure: Figure) -> None:
        print(figure)
        if path := os.environ.get(FILE_VARIABLE):
            with Path(path).open("a") as file:
                file.write(json.dumps(asdict(figure)) + "\n")
        assert figure.holds, str(figure)


def read_figures(path: Path) -> list[Figure]:
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def _text(value: float, unit: str) -> str:
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{number} {unit}".strip()
