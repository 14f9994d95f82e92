"""The dashboard as it is in the file, and its queries as a Grafana would send them."""

import json
from collections.abc import Iterator
from typing import Any

from tests.architecture.sources import ROOT

DASHBOARD = ROOT / "helm/routebook/files/dashboard.json"

_FILLED_IN = {"$namespace": ".*", "$job": ".*", "$__rate_interval": "20s"}
"""As with "All" chosen; the interval is what fits a test that scrapes each second."""


def read_dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Of panels and annotations: where, and what."""
    board = read_dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", filled_in(target["expr"])
    for annotation in board["annotations"]["list"]:
        if "expr" in annotation:
            yield f"annotation {annotation['name']}", filled_in(annotation["expr"])


def filled_in(expr: str) -> str:
    for variable, value in _FILLED_IN.items():
        expr = expr.replace(variable, value)
    return expr
