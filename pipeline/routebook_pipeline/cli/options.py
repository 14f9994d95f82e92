"""Options that several commands share, and the checks of their values before anything is started."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from routebook_pipeline.cli import warm
from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import DEFAULTS, Thresholds
from routebook_pipeline.times import When, parse_duration, parse_when

LAKE_VARIABLE: Final = "ROUTEBOOK_LAKE"
NAMESPACE_VARIABLE: Final = "ROUTEBOOK_NAMESPACE"
STORE_VARIABLE: Final = "ROUTEBOOK_REDIS_URL"

ARGUMENTS: Final = "routebook_pipeline.arguments"
"""Where click's context keeps the words of the command line, from the command's name on."""

Command = Callable[..., int | None]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class CommonOptions:
    """The lake, the namespace, the store, and the Spark session."""

    lake: str
    namespace: str
    master: str
    conf: dict[str, str]
    url_env: str
    allow_partial: bool
    debug: bool

    @property
    def store_variable(self) -> str | None:
        """None when the variable is not set, so that no store is known."""
        return self.url_env if os.environ.get(self.url_env) else None


def with_common_options(command: Command) -> Command:
    """Passes the command a CommonOptions as its first argument, or has the warm session run the command."""

    @wraps(command)
    def wrapped(**given: Any) -> int | None:
        given.pop("cold")
        common = CommonOptions(
            lake=_lake(given.pop("lake")),
            namespace=checked_namespace(given.pop("namespace")),
            master=given.pop("master"),
            conf=parse_conf(given.pop("conf")),
            url_env=checked_url_env(given.pop("url_env")),
            allow_partial=given.pop("allow_partial"),
            debug=given.pop("debug"),
        )
        context = click.get_current_context()
        # `--follow` asks the session again and again, and leaves it to others in between.
        is_warm = context.info_name in warm.WARM_COMMANDS and not given.get("follow")
        if is_warm and not given_flags(warm.OWN_SPARK):
            code = warm.run_warm(context.meta[ARGUMENTS], common.url_env)
            if code is not None:
                context.exit(code)
        return command(common, **given)

    decorated: Command = wrapped
    for option in reversed(_COMMON_OPTIONS):
        decorated = option(decorated)
    return decorated


namespace_option: Final[Decorator] = click.option(
    "--namespace", envvar=NAMESPACE_VARIABLE, default="default", show_default=True, show_envvar=True, metavar="NAME"
)
url_env_option: Final[Decorator] = click.option(
    "--url-env",
    default=STORE_VARIABLE,
    show_default=True,
    metavar="VARIABLE",
    help="Environment variable with the store's address. The address itself is no option: options are printed in "
    "plans and logs.",
)
lake_option: Final[Decorator] = click.option(
    "--lake",
    envvar=LAKE_VARIABLE,
    show_envvar=True,
    metavar="FOLDER|URL",
    help="Where the tables are: a folder, or s3://, gs://, abfss://, hdfs://.",
)
json_option: Final[Decorator] = click.option("--json", "json_", is_flag=True, help="Print JSON.")

master_option: Final[Decorator] = click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="local[N], or any other Spark master."
)
conf_option: Final[Decorator] = click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; repeatable. Overrides our own settings."
)
debug_option: Final[Decorator] = click.option(
    "--debug", is_flag=True, help="Show Java's output, and stack traces of errors."
)

_COMMON_OPTIONS: Final = (
    lake_option,
    namespace_option,
    url_env_option,
    master_option,
    conf_option,
    click.option(
        "--allow-partial",
        is_flag=True,
        help="If the history does not reach the end of the window, answer for the part that it covers.",
    ),
    click.option("--cold", is_flag=True, help="Start a Spark of its own, even if a warm session is there."),
    debug_option,
)


def given_flags(flags: Mapping[str, str]) -> list[str]:
    """The flags of those `flags` (name in Python -> flag) that are on the command line, whatever their value."""
    context = click.get_current_context()
    return [flag for name, flag in flags.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def refuse_flags(flags: Mapping[str, str], reason: str) -> None:
    """WrongUsageError if one of these options was given, because it would be ignored. `reason`: what it is for."""
    if wrong := given_flags(flags):
        raise WrongUsageError(f"{', '.join(wrong)} would be ignored: {reason}")


PARTIAL: Final = {"allow_partial": "--allow-partial"}


def _lake(given: str | None) -> str:
    if not given:
        raise WrongUsageError(f"No lake is named. Name it with --lake FOLDER|URL, or in {LAKE_VARIABLE}.")
    return given


def checked_namespace(given: str) -> str:
    if not _NAMESPACE.fullmatch(given):
        raise WrongUsageError(f"{given!r} is not a valid namespace. Allowed: up to 64 of letters, digits, _ . -")
    return given


def checked_url_env(given: str) -> str:
    if "://" in given:
        raise WrongUsageError(
            "--url-env takes the name of a variable, not an address, because options are printed in plans and logs. "
            f"Put the address into {STORE_VARIABLE}."
        )
    return given


def parse_conf(given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not (equals and key.startswith("spark.")):
            raise WrongUsageError(f"--conf {setting!r} is not a Spark setting. Allowed: spark.some.key=value")
        settings[key] = value
    return settings


class Duration(click.ParamType[float]):
    """A duration such as 30s or 5m, in seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002
        return value if isinstance(value, float) else parse_duration(value) / 1_000


DURATION = Duration()


def when_option(flag: str, name: str, *, help: str) -> Decorator:  # noqa: A002 click's name
    return click.option(flag, name, callback=_parse_when, metavar="T", help=help)


def _parse_when(_: click.Context, __: click.Parameter, text: str | None) -> When | None:
    return None if text is None else parse_when(text)


def window_options(*, default_start: str, default_end: str) -> Decorator:
    """Adds --from and --to; a command gets them as `start` and `end`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        to = when_option("--to", "end", help=f"End, exclusive. Default: {default_end}.")
        start = when_option(
            "--from", "start", help=f"Start, such as 2026-05-01T12:00Z, -2h or now. Default: {default_start}."
        )
        return start(to(command))

    return decorate


with_window = window_options(default_start="a day before the end", default_end="the end of the complete history")


def _parse_thresholds(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Thresholds:
    return parse_thresholds(given)


with_thresholds: Final[Decorator] = click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    callback=_parse_thresholds,
    metavar="NAME=VALUE",
    help="objective=0.999, flap=30s, …; repeatable. A wrong name lists all names.",
)

_TYPES: Final = {field.name: type(getattr(DEFAULTS, field.name)) for field in fields(Thresholds)}
_SHARES: Final = ("objective", "mass_loss_share", "late_share")


def parse_thresholds(given: Iterable[str]) -> Thresholds:
    """`name=value` for any field of Thresholds. A name may have dashes, and may omit `_ms` if the value has a unit."""
    chosen: dict[str, float] = {}
    for threshold in given:
        name, equals, text = threshold.partition("=")
        if not equals:
            raise WrongUsageError(
                f"--threshold {threshold!r} has no value. Allowed: NAME=VALUE with NAME one of {threshold_names()}."
            )
        field = _threshold_field(name)
        has_unit_in_name = field == name.strip().replace("-", "_")
        if not has_unit_in_name and text.strip().isdigit():
            raise WrongUsageError(
                f"--threshold {threshold} has no unit. Write {name}={text}s, for instance, or {field}={text} for "
                "milliseconds."
            )
        chosen[field] = _threshold_value(field, text)
    return replace(DEFAULTS, **chosen)  # type: ignore[arg-type]  # _threshold_value checks the type of each field


def threshold_names() -> str:
    """All thresholds with their defaults."""
    return ", ".join(f"{name} ({getattr(DEFAULTS, name)})" for name in _TYPES)


def _threshold_field(name: str) -> str:
    normalised = name.strip().replace("-", "_")
    for candidate in (normalised, f"{normalised}_ms"):
        if candidate in _TYPES:
            return candidate
    raise WrongUsageError(f"There is no threshold {name!r}. Allowed, with their defaults: {threshold_names()}.")


def _threshold_value(field: str, text: str) -> float:
    try:
        value: float = _TYPES[field](text)
    except ValueError:
        if not field.endswith("_ms"):
            wanted = "a whole number" if _TYPES[field] is int else "a number"
            raise WrongUsageError(f"The threshold {field} is {wanted}, not {text!r}.") from None
        value = parse_duration(text)
    if not 0 <= value < float("inf"):
        raise WrongUsageError(f"The threshold {field} cannot be {text}. Allowed: 0 or more.")
    if field in _SHARES and value > 1:
        raise WrongUsageError(f"The threshold {field} is a share, from 0 to 1, not {text}.")
    return value
