"""The figures that the cluster tests measure: kept in a file during the run, and printed as tables.

python -m tests.kubernetes.figures [FILE]      prints the table of the last run
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

FILE_VARIABLE: Final = "ROUTEBOOK_KUBE_FIGURES"
STRICT_VARIABLE: Final = "ROUTEBOOK_KUBE_STRICT"
"""If set, tests fail instead of being skipped."""
NOT_RUN: Final = "NOT RUN"


def figures_file() -> Path:
    return Path(os.environ.get(FILE_VARIABLE) or Path(tempfile.gettempdir()) / "routebook-cluster-test.json")


def reset() -> None:
    figures_file().write_text("{}")


def record(scenario: str, figures: Mapping[str, object]) -> None:
    recorded = _read()
    before = {name: value for name, value in recorded.get(scenario, {}).items() if name != NOT_RUN}
    recorded[scenario] = {**before, **figures}
    figures_file().write_text(json.dumps(recorded, indent=2))


def not_run(scenario: str, reason: str) -> NoReturn:
    """Skips the test and records that in the table, so that a reader of the table does not think it passed."""
    record(scenario, {NOT_RUN: reason})
    skip(reason)


def skip(reason: str) -> NoReturn:
    if os.environ.get(STRICT_VARIABLE):
        pytest.fail(f"{reason} ({STRICT_VARIABLE} is set, so nothing is skipped)")
    pytest.skip(reason)


def scenarios_not_run() -> dict[str, str]:
    """Maps each scenario that did not run to the reason."""
    return {scenario: found[NOT_RUN] for scenario, found in _read().items() if NOT_RUN in found}


def _read() -> dict[str, dict[str, Any]]:
    recorded: dict[str, dict[str, Any]] = json.loads(figures_file().read_text()) if figures_file().exists() else {}
    return recorded


_COLUMNS: Final = {
    "seconds": "seconds",
    "lookups": "lookups",
    "moves followed": "moved",
    "first tries failed, GO_AWAY clients": "failed first tries: GO_AWAY",
    "first tries failed, legacy clients": "legacy",
    "reasons": "reasons",
    "most tries of one lookup": "most tries",
    "last failed try after s": "last failed try, s",
    "slowest lookup s": "slowest lookup, s",
    "lookups lost": "lost",
    "wrong answers": "wrong",
    "registrations": "registered",
    "registrations failed": "failed",
}
"""Maps each figure of a load to the head of its column."""


def as_markdown(recorded: Mapping[str, Mapping[str, object]]) -> str:
    """A table of lookups and registrations with one row per scenario, and a table of all other figures."""
    loads = {scenario: figures for scenario, figures in recorded.items() if "lookups" in figures}
    out = [f"| scenario | {' | '.join(_COLUMNS.values())} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    out += [f"| {scenario} | {' | '.join(_text(of[name]) for name in _COLUMNS)} |" for scenario, of in loads.items()]
    out += ["", "| scenario | figure | |", "|---|---|---|"]
    for scenario, figures in recorded.items():
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
