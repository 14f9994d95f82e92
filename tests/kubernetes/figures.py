"""What the proof has measured: kept in a file while it runs, printed as a table at its end.

python -m tests.kubernetes.figures [FILE]      prints the table of the last run
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest

FILE_VARIABLE: Final = "ROUTEBOOK_KUBE_FIGURES"
STRICT_VARIABLE: Final = "ROUTEBOOK_KUBE_STRICT"
"""Set: what would be skipped fails."""
NOT_RUN: Final = "NOT RUN"


def figures_file() -> Path:
    return Path(os.environ.get(FILE_VARIABLE) or Path(tempfile.gettempdir()) / "routebook-cluster-test.json")


def begin() -> None:
    figures_file().write_text("{}")


def tell(scenario: str, figures: Mapping[str, object]) -> None:
    file = figures_file()
    known = json.loads(file.read_text()) if file.exists() else {}
    before = {name: value for name, value in known.get(scenario, {}).items() if name != NOT_RUN}
    known[scenario] = {**before, **figures}
    file.write_text(json.dumps(known, indent=2))


def not_run(scenario: str, reason: str) -> NoReturn:
    """It is skipped, and the table says so: who reads nothing but figures must not take it for proved."""
    tell(scenario, {NOT_RUN: reason})
    skip(reason)


def skip(reason: str) -> NoReturn:
    if os.environ.get(STRICT_VARIABLE):
        pytest.fail(f"{reason} ({STRICT_VARIABLE} is set, so nothing is skipped)")
    pytest.skip(reason)


def left_out() -> dict[str, str]:
    """Scenario → why it did not run."""
    known = json.loads(figures_file().read_text()) if figures_file().exists() else {}
    return {scenario: found[NOT_RUN] for scenario, found in known.items() if NOT_RUN in found}


_COLUMNS: Final = {
    "seconds": "seconds",
    "lookups": "lookups",
    "moves followed": "moved",
    "first tries failed, clients that follow GO_AWAY": "failed first tries: follow",
    "first tries failed, other clients": "others",
    "how": "how",
    "most tries one lookup needed": "most tries",
    "last failed try after s": "last failed try, s",
    "slowest lookup s": "slowest lookup, s",
    "lookups lost": "lost",
    "blank answers": "blank",
    "registrations": "registered",
    "registrations failed": "refused or failed",
}
"""Name of a figure of a load → head of its column."""


def as_markdown(known: Mapping[str, Mapping[str, object]]) -> str:
    """What happened to lookups and registrations, a line a scenario; then what else was measured."""
    loads = {scenario: figures for scenario, figures in known.items() if "lookups" in figures}
    out = [f"| while | {' | '.join(_COLUMNS.values())} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    out += [f"| {scenario} | {' | '.join(_text(of[name]) for name in _COLUMNS)} |" for scenario, of in loads.items()]
    out += ["", "| measured | | |", "|---|---|---|"]
    for scenario, figures in known.items():
        others = {name: value for name, value in figures.items() if name not in _COLUMNS}
        out += [f"| {scenario} | {name} | {_text(value)} |" for name, value in others.items()]
    return "\n".join(out)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {count}" for name, count in value.items()) or "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else figures_file()
    print(as_markdown(json.loads(file.read_text())))
