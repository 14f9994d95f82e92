"""values.yaml as a list of values: path, default, description, schema. The one source of the schema and of the table.

Above each key stand its description and, where a default cannot say what is allowed, a line `@schema {JSON}`.
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
class Declared:
    path: tuple[str, ...]
    default: Any
    about: str
    extra: dict[str, Any]
    """What `@schema` says."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_group(self) -> bool:
        """A mapping whose keys are values of the chart; others are passed on as they are."""
        return isinstance(self.default, dict) and bool(self.default) and "additionalProperties" not in self.extra


def declared_values() -> list[Declared]:
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_walk(root, yaml.safe_load(text), text.splitlines(), ()))


def _walk(node: Any, values: dict[str, Any], lines: list[str], above: tuple[str, ...]) -> Iterator[Declared]:
    for key_node, value_node in node.value:
        path = (*above, key_node.value)
        default = values[key_node.value]
        about, extra = _comment(lines, key_node.start_mark.line)
        found = Declared(path, default, about, extra)
        if not about and not found.is_group:
            raise UndescribedValueError(found.name)
        yield found
        if found.is_group:
            yield from _walk(value_node, default, lines, path)


def _comment(lines: list[str], line: int) -> tuple[str, dict[str, Any]]:
    words: list[str] = []
    extra: dict[str, Any] = {}
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        text = lines[line].lstrip().removeprefix("#").strip()
        if text.startswith(SCHEMA_MARK):
            extra |= json.loads(text.removeprefix(SCHEMA_MARK))
        else:
            words.insert(0, text)
    return " ".join(words), extra


def schema() -> dict[str, Any]:
    """Unknown keys are refused: a typing error must not be a silent default."""
    root: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#", **_group()}
    # Helm gives these to a chart that another one depends on.
    root["properties"]["global"] = {"type": "object"}
    root["properties"]["enabled"] = {"type": "boolean"}
    for found in declared_values():
        place = root
        for key in found.path[:-1]:
            place = place["properties"][key]
        place["properties"][found.path[-1]] = _schema_of(found)
    # A setting that does not exist stops every worker at its start: better said before anything is changed.
    root["properties"]["settings"]["propertyNames"] = {"enum": sorted(catalogue.all_settings())}
    return root


def _group() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _schema_of(found: Declared) -> dict[str, Any]:
    about = {"description": found.about} if found.about else {}
    if found.is_group:
        return {**about, **_group()}
    return {**about, "type": _TYPES[type(found.default)], "default": found.default, **found.extra}


def table() -> str:
    rows = [
        f"| `{found.name}` | {_cell(found.default)} | {_escaped(found.about)}{_allowed(found)} |"
        for found in declared_values()
        if not found.is_group
    ]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows])


def _cell(default: Any) -> str:
    return f"`{_escaped(json.dumps(default, ensure_ascii=False))}`"


def _allowed(found: Declared) -> str:
    allowed = found.extra.get("enum")
    # Nothing may stand for nothing; how it is written is said in the description.
    return f" One of {', '.join(_written(word) for word in allowed if word != '')}." if allowed else ""


def _written(word: Any) -> str:
    return f"`{word if isinstance(word, str) else json.dumps(word)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
