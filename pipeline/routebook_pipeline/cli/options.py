"""Options that all commands share, and what they are checked for before anything is started."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click

from routebook_pipeline.errors import WrongUsageError

LAKE_VARIABLE: Final = "ROUTEBOOK_LAKE"
NAMESPACE_VARIABLE: Final = "ROUTEBOOK_NAMESPACE"
STORE_VARIABLE: Final = "ROUTEBOOK_REDIS_URL"

LAKE_SCHEMES: Final = ("s3", "s3a", "gs", "abfss", "hdfs", "file")
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Place:
    """Whose history, where it is kept, and which Spark works on it."""

    lake: str
    namespace: str
    master: str
    conf: dict[str, str]
    url_env: str
    allow_partial: bool
    debug: bool

    @property
    def has_store(self) -> bool:
        return bool(os.environ.get(self.url_env))


def with_place(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Gives a command its `place`."""

    @wraps(command)
    def placed(**given: Any) -> int | None:
        place = Place(
            lake=_lake(given.pop("lake")),
            namespace=_namespace(given.pop("namespace")),
            master=given.pop("master"),
            conf=_conf(given.pop("conf")),
            url_env=_url_env(given.pop("url_env")),
            allow_partial=given.pop("allow_partial"),
            debug=given.pop("debug"),
        )
        return command(place, **given)

    options: Callable[..., int | None] = placed
    for one in reversed(_OPTIONS):
        options = one(options)
    return options


_OPTIONS: Final = (
    click.option(
        "--lake",
        envvar=LAKE_VARIABLE,
        show_envvar=True,
        metavar="FOLDER|URL",
        help=f"Where the tables are: a folder, or {', '.join(f'{name}://' for name in LAKE_SCHEMES[:-1])}.",
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


def _lake(given: str | None) -> str:
    if not given:
        raise WrongUsageError(f"Which lake? Name it with --lake FOLDER|URL, or in {LAKE_VARIABLE}.")
    scheme = _SCHEME.match(given)
    if scheme and scheme[1] not in LAKE_SCHEMES:
        allowed = ", ".join(f"{name}://" for name in LAKE_SCHEMES)
        raise WrongUsageError(f"A lake cannot be at {scheme[0]}…. Allowed: a folder, or {allowed}")
    return given if scheme else os.path.abspath(given)


def _namespace(given: str) -> str:
    if not _NAMESPACE.fullmatch(given) or given in {".", ".."}:
        raise WrongUsageError(f"{given!r} cannot be a name space. Allowed: up to 64 of letters, digits, _ . -")
    return given


def _conf(given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (equals and key.startswith("spark.")):
            raise WrongUsageError(f"--conf {one!r} is not a setting of Spark. Allowed: spark.some.key=value")
        settings[key] = value
    return settings


def _url_env(given: str) -> str:
    if "://" in given:
        raise WrongUsageError(
            "--url-env wants the name of a variable, not an address: options are printed in plans and logs. "
            f"Put the address into {STORE_VARIABLE}."
        )
    return given
