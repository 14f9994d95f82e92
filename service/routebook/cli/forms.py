"""The forms of output that `-o` chooses: tables for people; JSON, YAML, names and JSONPath for programs."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from routebook.cli.command import given_options, output_options
from routebook.cli.jsonpath import JsonPath
from routebook.cli.output import json_text, print_table, printable
from routebook.cli.staleness import staleness

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
