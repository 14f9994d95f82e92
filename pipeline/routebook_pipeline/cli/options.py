"""Options that all commands share, and what they are checked for before anything is started.

Options that hold a duration: 30s, 5m.

`--threshold name=value`: every number of `history.Thresholds`, durations with their unit if liked.

--from, --to, --threshold.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DEFAULTS, Thresholds
from routebook_pipeline.times import When, parse_duration, parse_when

LAKE_VARIABLE: Final = "ROUTEBOOK_LAKE"
NAMESPACE_VARIABLE: Final = "ROUTEBOOK_NAMESPACE"
STORE_VARIABLE: Final = "ROUTEBOOK_REDIS_URL"

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Site:
    """Whose history, where it is kept, and which Spark works on it."""

    lake: str
    namespace: str
    master: str
    conf: dict[str, str]
    url_env: str
    allow_partial: bool
    debug: bool

    @property
    def store_variable(self) -> str | None:
        """None when it holds nothing: the store cannot be asked."""
        return self.url_env if os.environ.get(self.url_env) else None


def with_site(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Gives a command its `site`."""

    @wraps(command)
    def sited(**given: Any) -> int | None:
        site = Site(
            lake=_lake(given.pop("lake")),
            namespace=checked_namespace(given.pop("namespace")),
            master=given.pop("master"),
            conf=_conf(given.pop("conf")),
            url_env=checked_url_env(given.pop("url_env")),
            allow_partial=given.pop("allow_partial"),
            debug=given.pop("debug"),
        )
        return command(site, **given)

    options: Callable[..., int | None] = sited
    for one in reversed(_OPTIONS):
        options = one(options)
    return options


_OPTIONS: Final = (
    click.option(
        "--lake",
        envvar=LAKE_VARIABLE,
        show_envvar=True,
        metavar="FOLDER|URL",
        help="Where the tables are: a folder, or s3://, gs://, abfss://, hdfs://.",
    ),
    click.option(
        "--namespace", envvar=NAMESPACE_VARIABLE, default="default", show_default=True, show_envvar=True, metavar="NAME"
    ),
    click.option(
        "--url-env",
        default=STORE_VARIABLE,
        show_default=True,
        metavar="VARIABLE",
        help="Name of the variable that holds the store's address; never the address, which would be printed in plans.",
    ),
    click.option(
        "--master", default="local[*]", show_default=True, metavar="URL", help="local[N], or any master Spark knows."
    ),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable, wins over ours."),
    click.option(
        "--allow-partial", is_flag=True, help="Answer for the part of the window that the history reaches; say so."
    ),
    click.option("--debug", is_flag=True, help="Show what Java says, and where an error comes from."),
)


def typed(flags: Mapping[str, str]) -> list[str]:
    """Of these options (name in Python -> flag) those that stand on the command line, whatever their value."""
    context = click.get_current_context()
    return [flag for name, flag in flags.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def refuse(flags: Mapping[str, str], why: str) -> None:
    """WrongUsageError when one of them was typed, which would be ignored; `why` says what they are for."""
    if wrong := typed(flags):
        raise WrongUsageError(f"{', '.join(wrong)} would be ignored: {why}")


PARTIAL: Final = {"allow_partial": "--allow-partial"}


def _lake(given: str | None) -> str:
    if not given:
        raise WrongUsageError(f"Which lake? Name it with --lake FOLDER|URL, or in {LAKE_VARIABLE}.")
    return given


def checked_namespace(given: str) -> str:
    if not _NAMESPACE.fullmatch(given):
        raise WrongUsageError(f"{given!r} cannot be a namespace. Allowed: up to 64 of letters, digits, _ . -")
    return given


def _conf(given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (equals and key.startswith("spark.")):
            raise WrongUsageError(f"--conf {one!r} is not a setting of Spark. Allowed: spark.some.key=value")
        settings[key] = value
    return settings


def checked_url_env(given: str) -> str:
    if "://" in given:
        raise WrongUsageError(
            "--url-env wants the name of a variable, not an address: options are printed in plans and logs. "
            f"Put the address into {STORE_VARIABLE}."
        )
    return given


class Duration(click.ParamType[float]):
    """Seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002
        return value if isinstance(value, float) else parse_duration(value) / 1_000


DURATION = Duration()


_TYPES: Final = {field.name: type(getattr(DEFAULTS, field.name)) for field in fields(Thresholds)}


def parse_thresholds(given: Iterable[str]) -> Thresholds:
    """A name may be written with dashes, and may leave its `_ms` out when the value brings a unit."""
    chosen: dict[str, float] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise WrongUsageError(f"--threshold {one!r} has no value. Allowed: NAME=VALUE with NAME of {known()}.")
        field = _field(name)
        chosen[field] = _value(field, text)
    return replace(DEFAULTS, **chosen)  # type: ignore[arg-type]  # checked by _value, field by field


def known() -> str:
    return ", ".join(f"{name} ({getattr(DEFAULTS, name)})" for name in _TYPES)


def _field(name: str) -> str:
    spelled = name.strip().replace("-", "_")
    for candidate in (spelled, f"{spelled}_ms"):
        if candidate in _TYPES:
            return candidate
    raise WrongUsageError(f"There is no threshold {name!r}. Allowed, with their defaults: {known()}.")


def _value(field: str, text: str) -> float:
    try:
        value: float = _TYPES[field](text)
    except ValueError:
        if not field.endswith("_ms"):
            wanted = "a whole number" if _TYPES[field] is int else "a number"
            raise WrongUsageError(f"The threshold {field} is {wanted}, not {text!r}.") from None
        value = parse_duration(text)
    if not 0 <= value < float("inf"):
        raise WrongUsageError(f"The threshold {field} cannot be {text}. Allowed: 0 or more.")
    if field in {"objective", "mass_loss_share", "late_share"} and value > 1:
        raise WrongUsageError(f"The threshold {field} is a share, from 0 to 1, not {text}.")
    return value


def _when(_: click.Context, __: click.Parameter, text: str | None) -> When | None:
    return None if text is None else parse_when(text)


def _thresholds(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Thresholds:

    return parse_thresholds(given)


def when_option(flag: str, name: str, *, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: A002
    return click.option(flag, name, callback=_when, metavar="T", help=help)


def window_options(*, start: str, end: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command `start` and `end`, each with what it means when it is left out."""

    def windowed(command: Callable[..., Any]) -> Callable[..., Any]:
        to = when_option("--to", "end", help=f"End, exclusive. Without: {end}.")
        return when_option("--from", "start", help=f"2026-05-01T12:00Z, -2h or now. Without: {start}.")(to(command))

    return windowed


with_window = window_options(start="a day before the end", end="as far as the history is complete")

with_thresholds = click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    callback=_thresholds,
    metavar="NAME=VALUE",
    help="objective=0.999, flap=30s, …; repeatable. A wrong name lists them all.",
)
