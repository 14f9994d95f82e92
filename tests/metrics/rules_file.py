"""Reads helm/routebook/files/alerts.yaml as it is written: groups, alerts, and four levels of keys. promtool checks
that it is what Prometheus takes (`test_alerts.py`); this is for machines without it, and needs no YAML library.
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
    wait: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def labels_used(self) -> set[str]:
        """By its texts: of what is not there, a text would say nothing."""
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
                alerts[-1].wait = value
        elif indent >= 10 and section == "expr":
            alerts[-1].expr += f"{text}\n"
        elif indent == 10 and section in ("labels", "annotations"):
            getattr(alerts[-1], section)[key] = value
        elif indent > 6:
            raise ValueError(f"line {number} of {path.name} is not written as this reader knows it: {text}")
    return alerts
