"""Reads values.yaml as a list of values with default, description and schema; generates the JSON schema and the table.

The comment above a key is its description. A line `@schema {JSON}` adds constraints that the default does not imply.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from routebook.settings import catalogue
from tests.chart.rendering import CHART

import yaml  # isort: skip

SCHEMA_MARK = "@schema "
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class UndescribedValueError(Exception):
    """A key of values.yaml without a comment."""


@dataclass(frozen=True)
class ChartValue:
    path: tuple[str, ...]
    default: Any
    description: str
    constraints: dict[str, Any]
    """From the `@schema` lines."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_group(self) -> bool:
        """A mapping whose keys are values of their own. Other mappings are passed on unchanged."""
        return isinstance(self.default, dict) and bool(self.default) and "additionalProperties" not in self.constraints


def chart_values() -> list[ChartValue]:
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_walk(root, yaml.safe_load(text), text.splitlines(), ()))


def _walk(node: Any, values: dict[str, Any], lines: list[str], parent: tuple[str, ...]) -> Iterator[ChartValue]:
    for key_node, value_node in node.value:
        path = (*parent, key_node.value)
        default = values[key_node.value]
        description, constraints = _comment(lines, key_node.start_mark.line)
        found = ChartValue(path, default, description, constraints)
        if not description and not found.is_group:
            raise UndescribedValueError(found.name)
        yield found
        if found.is_group:
            yield from _walk(value_node, default, lines, path)


def _comment(lines: list[str], line: int) -> tuple[str, dict[str, Any]]:
    words: list[str] = []
    constraints: dict[str, Any] = {}
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        text = lines[line].lstrip().removeprefix("#").strip()
        if text.startswith(SCHEMA_MARK):
            constraints |= json.loads(text.removeprefix(SCHEMA_MARK))
        else:
            words.insert(0, text)
    return " ".join(words), constraints


def schema() -> dict[str, Any]:
    """Refuses unknown keys: a misspelt key must not silently mean the default."""
    root: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#", **_group()}
    # Helm passes these to a chart that another chart depends on.
    root["properties"]["global"] = {"type": "object"}
    root["properties"]["enabled"] = {"type": "boolean"}
    for found in chart_values():
        group = root
        for key in found.path[:-1]:
            group = group["properties"][key]
        group["properties"][found.path[-1]] = _schema_of(found)
    # An unknown setting would stop every worker at its start, so Helm refuses it before anything is changed.
    root["properties"]["settings"]["propertyNames"] = {"enum": sorted(catalogue.all_settings())}
    return root


def _group() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _schema_of(found: ChartValue) -> dict[str, Any]:
    description = {"description": found.description} if found.description else {}
    if found.is_group:
        return {**description, **_group()}
    return {**description, "type": _TYPES[type(found.default)], "default": found.default, **found.constraints}


def table() -> str:
    rows = [
        f"| `{found.name}` | {_cell(found.default)} | {_escaped(found.description)}{_allowed(found)} |"
        for found in chart_values()
        if not found.is_group
    ]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows])


def _cell(default: Any) -> str:
    return f"`{_escaped(json.dumps(default, ensure_ascii=False))}`"


def _allowed(found: ChartValue) -> str:
    allowed = found.constraints.get("enum")
    # An empty string means the default that the description names.
    return f" One of {', '.join(_quoted(word) for word in allowed if word != '')}." if allowed else ""


def _quoted(word: Any) -> str:
    return f"`{word if isinstance(word, str) else json.dumps(word)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
