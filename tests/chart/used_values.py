"""Finds which values the templates use by reading their text: `.Values.a.b`, also through `with` and variables."""

import re
from pathlib import Path

from tests.chart.rendering import CHART

ValuePath = tuple[str, ...]

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_ASSIGNED = re.compile(r"^\$(\w+)\s*:=\s*\$?\.Values((?:\.\w+)*)$")
_VALUES = re.compile(r"\.Values((?:\.\w+)+)")
_VARIABLE = re.compile(r"\$(\w+)((?:\.\w+)+)")
_BARE = re.compile(r"(?<![\w$.)])\.([a-z]\w*(?:\.\w+)*)")
_OPENS = re.compile(r"^(if|with|range|define|block)\b\s*(.*)$", re.DOTALL)
_TEMPLATE_ARGUMENTS = {"root", "component", "name", "of"}
"""Keys of the dicts that the chart's named templates receive."""


def used_paths() -> dict[ValuePath, str]:
    """Maps the path of each used value to a template that uses it."""
    found: dict[ValuePath, str] = {}
    for file in sorted((CHART / "templates").rglob("*.*")):
        for path in _used_in(file):
            found.setdefault(path, file.name)
    return found


def _used_in(file: Path) -> list[ValuePath]:
    found: list[ValuePath] = []
    variables: dict[str, ValuePath] = {}
    dots: list[ValuePath | None] = [()]
    for action in _ACTION.findall(_COMMENT.sub("", file.read_text())):
        code = _STRING.sub('""', action)
        if assigned := _ASSIGNED.match(code):
            variables[assigned[1]] = _to_path(assigned[2])
            continue
        found += _mentioned(code, variables, dots[-1])
        if code == "end":
            dots.pop()
        elif opens := _OPENS.match(code):
            dots.append(_dot_inside(opens[1], opens[2], variables, dots[-1]))
    return found


def _mentioned(code: str, variables: dict[str, ValuePath], dot: ValuePath | None) -> list[ValuePath]:
    found = [_to_path(tail) for tail in _VALUES.findall(code)]
    found += [variables[name] + _to_path(tail) for name, tail in _VARIABLE.findall(code) if name in variables]
    if dot:
        bare = _BARE.findall(_VALUES.sub("", code))
        found += [dot + _to_path(tail) for tail in bare if tail.split(".")[0] not in _TEMPLATE_ARGUMENTS]
    return found


def _dot_inside(word: str, rest: str, variables: dict[str, ValuePath], dot: ValuePath | None) -> ValuePath | None:
    """The value that `.` means inside the block. None: not a value of the chart, or unknown."""
    if word in ("if", "block"):
        return dot
    if word != "with":
        return None
    if whole := re.fullmatch(r"\$?\.Values((?:\.\w+)+)", rest):
        return _to_path(whole[1])
    if (of_variable := re.fullmatch(r"\$(\w+)((?:\.\w+)+)", rest)) and of_variable[1] in variables:
        return variables[of_variable[1]] + _to_path(of_variable[2])
    if dot and (bare := re.fullmatch(r"\.([a-z]\w*(?:\.\w+)*)", rest)):
        return dot + _to_path(bare[1])
    return None


def _to_path(text: str) -> ValuePath:
    return tuple(part for part in text.split(".") if part)
