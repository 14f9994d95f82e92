"""What the proof has measured: kept in a file while it runs, printed as a table at its end.

python -m tests.kubernetes.figures [FILE]      prints the table of the last run
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE_VARIABLE: Final = "ROUTEBOOK_KUBE_FIGURES"


def figures_file() -> Path:
    return Path(os.environ.get(FILE_VARIABLE) or Path(tempfile.gettempdir()) / "routebook-cluster-test.json")


def begin() -> None:
    figures_file().write_text("{}")


def tell(scenario: str, figures: Mapping[str, object]) -> None:
    file = figures_file()
    known = json.loads(file.read_text()) if file.exists() else {}
    known[scenario] = {**known.get(scenario, {}), **figures}
    file.write_text(json.dumps(known, indent=2))


def as_markdown(known: Mapping[str, Mapping[str, object]]) -> str:
    out = ["| scenario | figure | |", "|---|---|---|"]
    for scenario, figures in known.items():
        for number, (name, value) in enumerate(figures.items()):
            out.append(f"| {scenario if number == 0 else ''} | {name} | {_text(value)} |")
    return "\n".join(out)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {count}" for name, count in value.items()) or "none"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else figures_file()
    print(as_markdown(json.loads(file.read_text())))
