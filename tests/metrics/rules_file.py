"""Reads helm/routebook/files/alerts.yaml without a YAML library; it understands only the layout of that file.

`test_alerts.py` has promtool check the file too, on machines that have it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.architecture.sources import ROOT

ALERTS = ROOT / "helm/routebook/files/alerts.yaml"

_METRIC = re.compile(r"\b(?:routebook|process)_[a-z_]+\b")
_LABELS_USED = re.compile(r"\$labels\.([a-z_]+)")


@dataclass(slots=True)
class Alert:
    name: str
    expr: str = ""
    pending_for: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def labels_used(self) -> set[str]:
        """Labels that its annotations refer to."""
        return {name for text in self.annotations.values() for name in _LABELS_USED.findall(text)}


def metrics_in(expr: str) -> set[str]:
    return set(_METRIC.findall(expr))


def read_alerts(path: Path = ALERTS) -> list[Alert]:
    alerts: list[Alert] = []
    section = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        key, _, value = text.partition(":")
        value = value.strip().strip('"')
        if text.startswith("- alert:"):
            alerts.append(Alert(value))
        elif indent == 8:
            section = key
            if key == "for":
                alerts[-1].pending_for = value
        elif indent >= 10 and section == "expr":
            alerts[-1].expr += f"{text}\n"
        elif indent == 10 and section in ("labels", "annotations"):
            getattr(alerts[-1], section)[key] = value
        elif indent > 6:
            raise ValueError(f"line {number} of {path.name} is not in the layout that this reader understands: {text}")
    return alerts
