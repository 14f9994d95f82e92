"""The tables of `docs/reliability.md`: what `make chaos` asked and what it saw. The rest is written by hand."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from tests.architecture.sources import ROOT
from tests.faults.rows import Row
from tests.support.figures import Figure

PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- written by `make chaos`: begin -->"
END: Final = "<!-- written by `make chaos`: end -->"
HEAD: Final = "| # | fault | how it is injected | asked | seen | seed |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Outcome:
    """What the tests of one row showed."""

    row: Row
    figures: Sequence[Figure]
    passed: int
    failed: int
    skipped: Sequence[str]
    seconds: float
    seed: int
    is_ended: bool = False
    """It took longer than the limit of the row."""

    @property
    def verdict(self) -> Literal["held", "failed", "skipped"]:
        if self.failed:
            return "failed"
        return "held" if self.passed else "skipped"

    @property
    def seen(self) -> list[str]:
        """One text per figure, with the distinct values if it was measured several times."""
        texts = []
        for name, figures in groupby(sorted(self.figures, key=lambda one: one.name), key=lambda one: one.name):
            measured = list(figures)
            values = list(dict.fromkeys(one.seen for one in measured))
            asked = measured[0].asked
            shown = values if len(values) <= 3 else [*values[:2], "…", values[-1]]
            missed = "" if all(one.holds for one in measured) else "**missed**: "
            explanation = next((one.explanation for one in measured if not one.holds), "")
            texts.append(f"{missed}{name}: {', '.join(shown)}" + (f" (asked {asked})" if asked else "") + explanation)
        if not (self.passed or self.failed or self.skipped):
            return ["not run"]
        if self.is_ended:
            return [*texts, f"**ended after {self.seconds:.0f} s**"]
        counts = [f"{self.passed} tests passed" if self.passed != 1 else "1 test passed"]
        counts += [f"**{self.failed} failed**"] if self.failed else []
        counts += [f"{len(self.skipped)} skipped ({self.skipped[0]})"] if self.skipped else []
        return [*texts, ", ".join(counts)]


def write_page(page: Path, outcomes: Sequence[Outcome], run: str) -> None:
    """Replaces what is between the two marks."""
    parts = [textwrap.fill(f"Run of {run}.", 100, break_long_words=False, break_on_hyphens=False), ""]
    for part, rows in groupby(outcomes, key=lambda outcome: outcome.row.part):
        parts += [f"### {part}", "", HEAD, *map(_line, rows), ""]
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{after}")


def _line(outcome: Outcome) -> str:
    row = outcome.row
    seen = "; ".join(outcome.seen)
    verdict = "" if outcome.verdict == "held" else f"**{outcome.verdict}**. "
    cells = (str(row.number), row.fault, row.injected, row.asked, verdict + seen, str(outcome.seed))
    return "| " + " | ".join(_cell(one) for one in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def rows_of(page: Path) -> dict[int, tuple[str, ...]]:
    """The cells of each row of the page's tables, by number."""
    found = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[0].isdigit():
            found[int(cells[0])] = tuple(cell.replace("\\|", "|") for cell in cells[1:])
    return found
