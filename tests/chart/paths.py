"""Which values templates use, read from their text: `.Values.a.b`, also through `with` and through variables."""

import re
from pathlib import Path

from tests.chart.rendering import CHART

Way = tuple[str, ...]

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_ASSIGNED = re.compile(r"^\$(\w+)\s*:=\s*\$?\.Values((?:\.\w+)*)$")
_VALUES = re.compile(r"\.Values((?:\.\w+)+)")
_VARIABLE = re.compile(r"\$(\w+)((?:\.\w+)+)")
_BARE = re.compile(r"(?<![\w$.)])\.([a-z]\w*(?:\.\w+)*)")
_OPENS = re.compile(r"^(if|with|range|define|block)\b\s*(.*)$", re.DOTALL)
_OF_HELM = {"root", "component", "name", "of"}
"""What our named templates get in a dict."""


def used_paths() -> dict[Way, str]:
    """Path of a value -> a template that uses it."""
    found: dict[Way, str] = {}
    for path in sorted((CHART / "templates").rglob("*.*")):
        for way in _used_in(path):
            found.setdefault(way, path.name)
    return found


def _used_in(path: Path) -> list[Way]:
    found: list[Way] = []
    variables: dict[str, Way] = {}
    dots: list[Way | None] = [()]
    for action in _ACTION.findall(_COMMENT.sub("", path.read_text())):
        code = _STRING.sub('""', action)
        if assigned := _ASSIGNED.match(code):
            variables[assigned[1]] = _way(assigned[2])
            continue
        found += _mentioned(code, variables, dots[-1])
        if code == "end":
            dots.pop()
        elif opens := _OPENS.match(code):
            dots.append(_dot_within(opens[1], opens[2], variables, dots[-1]))
    return found


def _mentioned(code: str, variables: dict[str, Way], dot: Way | None) -> list[Way]:
    found = [_way(tail) for tail in _VALUES.findall(code)]
    found += [variables[name] + _way(tail) for name, tail in _VARIABLE.findall(code) if name in variables]
    if dot:
        bare = _BARE.findall(_VALUES.sub("", code))
        found += [dot + _way(tail) for tail in bare if tail.split(".")[0] not in _OF_HELM]
    return found


def _dot_within(word: str, rest: str, variables: dict[str, Way], dot: Way | None) -> Way | None:
    """None: something that is no value of the chart, or not known which."""
    if word in ("if", "block"):
        return dot
    if word != "with":
        return None
    if whole := re.fullmatch(r"\$?\.Values((?:\.\w+)+)", rest):
        return _way(whole[1])
    if (of_variable := re.fullmatch(r"\$(\w+)((?:\.\w+)+)", rest)) and of_variable[1] in variables:
        return variables[of_variable[1]] + _way(of_variable[2])
    if dot and (bare := re.fullmatch(r"\.([a-z]\w*(?:\.\w+)*)", rest)):
        return dot + _way(bare[1])
    return None


def _way(text: str) -> Way:
    return tuple(part for part in text.split(".") if part)
