"""Reads the dashboard file, and its queries in the form that Grafana would send."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.architecture.sources import ROOT

DASHBOARD = ROOT / "helm/routebook/files/dashboard.json"

_SUBSTITUTES = {"$namespace": ".*", "$job": ".*", "$__rate_interval": "20s"}
"""The values for the choice "All", and an interval that suits a test that scrapes every second."""


def read_dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Yields the place and expression of each query, in panels and annotations."""
    board = read_dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", substituted(target["expr"])
    for annotation in board["annotations"]["list"]:
        if "expr" in annotation:
            yield f"annotation {annotation['name']}", substituted(annotation["expr"])


def choices() -> Iterator[tuple[str, str, str]]:
    """Yields name, metric and label of each variable whose values Grafana queries."""
    for variable in read_dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found, variable
            yield variable["name"], found[1], found[2]


def substituted(expr: str) -> str:
    for variable, value in _SUBSTITUTES.items():
        expr = expr.replace(variable, value)
    return expr
