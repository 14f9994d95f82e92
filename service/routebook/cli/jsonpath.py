"""The JSONPath of `-o jsonpath=…`: the part of kubectl's that picks values.

A template is a path (`.workers[0].worker`), or text with paths in braces (`{.version} {.digest}`). A path has the steps
`.name`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*` and `[?(@.name == 'value')]` with `==`, `!=`, `<`, `<=`, `>`, `>=`.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from routebook.errors import InvalidInputError
from routebook.runtime.exits import AnswerIsNoError

_ALLOWED: Final = "a path such as .workers[0].worker, or text with paths in braces such as '{.version} {.digest}'"
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'" ]+)
      | \[(?P<index>-?[0-9]{1,9}|\*)\]
      | \['(?P<quoted>[^']*)'\]
      | \[\?\(\s*@(?P<inner>(?:\.[^.\[\]'"\s=!<>]+)+)
            \s*(?P<compare>==|!=|<=|>=|<|>)
            \s*(?P<literal>'[^']*'|"[^"]*"|[^\s)]+)\s*\)\]
    """,
    re.VERBOSE,
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}

Step = Callable[[Any], Iterator[Any]]


class JsonPath:
    """A checked template. The check comes before the request: a mistake must not cost one."""

    def __init__(self, template: str) -> None:
        self._parts: list[str | list[Step]] = []
        self._template = template
        if "{" not in template:
            self._parts.append(_steps(template, template))
            return
        for part in re.split(r"(\{[^{}]*\})", template):
            inner = part[1:-1].strip() if part[:1] == "{" and part[-1:] == "}" else None
            if inner is None and ("{" in part or "}" in part):
                raise InvalidInputError("jsonpath", template, _ALLOWED)
            if inner is None:
                self._parts.append(part)
            elif inner[:1] in ("'", '"') and inner[-1:] == inner[:1]:
                self._parts.append(re.sub(r"\\[nt]", lambda found: _ESCAPES[found[0]], inner[1:-1]))
            else:
                self._parts.append(_steps(inner, template))

    def text(self, value: object) -> str:
        """Several values of one path stand on lines of their own."""
        return "".join(part if isinstance(part, str) else self._values(part, value) for part in self._parts)

    def _values(self, steps: list[Step], value: object) -> str:
        found = [value]
        for step in steps:
            found = [inner for one in found for inner in step(one)]
        if not found:
            top = ", ".join(f".{name}" for name in value) if isinstance(value, dict) else "a list: begin with [*]"
            raise AnswerIsNoError(f"{self._template} is not in the answer.", advice=f"At the top there is {top}.")
        return "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in found)


def _steps(path: str, template: str) -> list[Step]:
    rest = path.removeprefix("$").removeprefix("@")
    if rest in ("", "."):
        return []
    if not rest.startswith((".", "[")):
        rest = f".{rest}"
    steps: list[Step] = []
    while rest:
        rest = rest.removeprefix(".") if rest.startswith(".[") else rest
        found = _STEP.match(rest)
        if found is None:
            raise InvalidInputError("jsonpath", template, _ALLOWED)
        steps.append(_step(found))
        rest = rest[found.end() :]
    return steps


def _step(found: re.Match[str]) -> Step:
    if found["compare"]:
        inner = [_member(name) for name in found["inner"].strip(".").split(".")]
        return _filter(inner, _COMPARISONS[found["compare"]], _literal(found["literal"]))
    if found["index"] == "*" or found["name"] == "*":
        return _every
    if found["index"]:
        return _item(int(found["index"]))
    return _member(found["name"] if found["quoted"] is None else found["quoted"])


def _literal(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _member(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _item(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _filter(inner: list[Step], compare: Callable[[Any, Any], bool], literal: Any) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for one in _every(value):
            found = [one]
            for take in inner:
                found = [deeper for item in found for deeper in take(item)]
            if any(_compares(item, compare, literal) for item in found):
                yield one

    return step


def _compares(item: Any, compare: Callable[[Any, Any], bool], literal: Any) -> bool:
    try:
        return compare(item, literal)
    except TypeError:  # a number and a text have no order
        return False
