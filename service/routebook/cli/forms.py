"""The forms of output that `-o` chooses: tables for people; JSON, YAML, names and JSONPath for programs. Each form also
says when an answer of the service may be old or wrong: on stderr, and in JSON.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeVar

import click
import httpx

from routebook.cli.command import given_options, output_options
from routebook.cli.output import json_text, print_table, printable
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
Steps = list[tuple[Step, bool]]
"""Each step, and whether it selects (`[*]`, `.*`, a filter). A list of which nothing is selected is an answer, too."""


class JsonPath:
    """A checked template: the part of kubectl's JSONPath that picks values. The check comes before the request: a
    mistake must not cost one.

    A template is a path (`.workers[0].worker`), or text with paths in braces (`{.version} {.digest}`). A path has the
    steps `.name`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*` and `[?(@.name == 'value')]` with `==`, `!=`, `<`, `<=`, `>`,
    `>=`.
    """

    def __init__(self, template: str) -> None:
        self._parts: list[str | Steps] = []
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

    def _values(self, steps: Steps, value: object) -> str:
        found = [value]
        is_missing = False
        for step, selects in steps:
            taken = [inner for one in found for inner in step(one)]
            is_list = selects and all(isinstance(one, list | dict) for one in found)
            is_missing |= bool(found) and not taken and not is_list
            found = taken
        if is_missing:
            top = ", ".join(f".{name}" for name in value) if isinstance(value, dict) else "a list: begin with [*]"
            raise AnswerIsNoError(f"{self._template} is not in the answer.", advice=f"At the top there is {top}.")
        return "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in found)


def _steps(path: str, template: str) -> Steps:
    rest = path.removeprefix("$").removeprefix("@")
    if rest in ("", "."):
        return []
    if not rest.startswith((".", "[")):
        rest = f".{rest}"
    steps: Steps = []
    while rest:
        rest = rest.removeprefix(".") if rest.startswith(".[") else rest
        found = _STEP.match(rest)
        if found is None:
            raise InvalidInputError("jsonpath", template, _ALLOWED)
        steps.append((_step(found), bool(found["compare"] or "*" in (found["index"], found["name"]))))
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


_TEXTS: Final = {
    "incomplete": "This worker has not loaded the whole table yet, so names may be missing.",
    "stale": "This worker is out of touch with the store for {stale_seconds} s, so the answer may be old.",
    "recovering": "The store lost data; the answer includes what this worker had before.",
    "removals-held": "Removals are held: some brokers shown may be dead. See `routebook expiry status`.",
}
_KEY: Final = "routebook.staleness"


@dataclass(slots=True)
class Staleness:
    """Why the answers that one command received may be old or wrong."""

    kinds: list[str] = field(default_factory=list)
    stale_seconds: int = 0
    is_reported: bool = True
    """False for a command that reports the state of the service itself."""

    def read_headers(self, answer: httpx.Response) -> None:
        """Writes each new reason to stderr once."""
        self.stale_seconds = int(answer.headers.get("x-routebook-stale-seconds", self.stale_seconds))
        for kind in filter(None, answer.headers.get("x-routebook-warnings", "").split(", ")):
            if kind in self.kinds:
                continue
            self.kinds.append(kind)
            if self.is_reported:
                click.echo(f"Warning: {printable(self.text_of(kind))}", err=True)

    def text_of(self, kind: str) -> str:
        return _TEXTS.get(kind, f"The service reports: {kind}.").format(stale_seconds=self.stale_seconds)

    def add_to(self, value: Any) -> Any:
        """The same JSON value, in which the object, or each object of a list, names the reasons."""
        if not self.kinds or not isinstance(value, dict | list):
            return value
        if isinstance(value, list):
            return [self.add_to(item) for item in value]
        return {**value, "service_warnings": self.kinds, "stale_seconds": self.stale_seconds}


def staleness() -> Staleness:
    """That of the running command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Staleness()
    found: Staleness = context.meta.setdefault(_KEY, Staleness())
    return found


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Form:
    name: str = "table"
    path: JsonPath | None = None
    has_headers: bool = True

    @property
    def is_table(self) -> bool:
        """Whether people read the output: `table` or `wide`."""
        return self.name in ("table", "wide")

    @property
    def is_wide(self) -> bool:
        return self.name == "wide"

    def print_data(self, value: object, names: Iterable[str] = ()) -> None:
        """Prints one document. `names` are what `-o name` prints, one on a line."""
        value = staleness().add_to(value)
        if self.name == "name":
            for name in names:
                click.echo(printable(name))
        elif self.name == "yaml":
            click.echo(yaml_text(value))
        elif self.path:
            click.echo(printable(self.path.text(value)))
        else:
            click.echo(json_text(value, indent=2))

    def print_entry(self, value: object, name: str = "") -> None:
        """Prints one of many documents: one line of JSON, or one YAML document."""
        value = staleness().add_to(value)
        if self.name == "yaml":
            click.echo("---")
        if self.name in ("table", "wide", "json"):
            click.echo(json_text(value))
        else:
            self.print_data(value, [name])

    def print_table(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        print_table(header, rows, has_header=self.has_headers)


def chosen_form(*, names: bool) -> Form:
    """The form of this command line. `names`: whether the command can print names alone."""
    given = given_options()
    text = str(given.get("form") or "table")
    alternatives = [form for form, option in (("json", "json"), ("wide", "wide")) if given.get(option)]
    if "form" not in given and alternatives:
        text = alternatives[0]
    if len({text, *alternatives}) > 1:
        raise click.UsageError("Only one form of output is possible: -o, --json or --wide.")
    name, _, path = text.partition("=")
    if name == "name" and not names:
        raise click.UsageError("The output of this command has no names; -o name is not possible.")
    return Form(name, JsonPath(path) if path else None, not given.get("no_headers"))


def with_output(command: Callable[..., R]) -> Callable[..., R]:
    """Adds -o, --json, --wide and --no-headers, and passes the choice as `form`."""
    return _with_form(command, names=False)


def with_names(command: Callable[..., R]) -> Callable[..., R]:
    """The same for a command that lists things: it also accepts `-o name`."""
    return _with_form(command, names=True)


def _with_form(command: Callable[..., R], *, names: bool) -> Callable[..., R]:
    @output_options
    @wraps(command)
    def with_chosen(*args: Any, **kwargs: Any) -> R:
        return command(*args, form=chosen_form(names=names), **kwargs)

    return with_chosen


def as_json(command: Callable[..., R]) -> Callable[..., R]:
    """The same for a command that only distinguishes tables (`json_` is false) from all other forms."""

    @output_options
    @wraps(command)
    def with_flag(*args: Any, **kwargs: Any) -> R:
        return command(*args, json_=not chosen_form(names=False).is_table, **kwargs)

    return with_flag


def print_json(value: object) -> None:
    """Prints data in the chosen form; JSON if that is a table."""
    chosen_form(names=False).print_data(value)


_PLAIN_TEXT: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_YAML_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def yaml_text(value: object, indent: str = "") -> str:
    """YAML in block style. Texts that YAML could read as something else are quoted as in JSON, which YAML includes."""
    if isinstance(value, dict) and value:
        return "\n".join(f"{indent}{_scalar(str(name))}:{_inner(item, indent)}" for name, item in value.items())
    if isinstance(value, list | tuple) and value:
        return "\n".join(f"{indent}-{_list_item(item, indent)}" for item in value)
    return indent + _scalar(value)


def _inner(value: object, indent: str) -> str:
    if isinstance(value, dict | list | tuple) and value:
        return "\n" + yaml_text(value, indent + ("  " if isinstance(value, dict) else ""))
    return f" {_scalar(value)}"


def _list_item(value: object, indent: str) -> str:
    """The first line of a nested value stands behind the dash."""
    if isinstance(value, dict | list | tuple) and value:
        return " " + yaml_text(value, indent + "  ").removeprefix(indent + "  ")
    return f" {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _YAML_WORDS else json_text(value)
    return json.dumps(value)
