"""The dashboard as it is in the file, and its queries as a Grafana would send them."""

import json
import re
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


def choices() -> Iterator[tuple[str, str, str]]:
    """Of variables that are asked for: name, metric, label."""
    for variable in read_dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found, variable
            yield variable["name"], found[1], found[2]


def filled_in(expr: str) -> str:
    for variable, value in _FILLED_IN.items():
        expr = expr.replace(variable, value)
    return expr
