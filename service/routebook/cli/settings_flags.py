"""The flags of `up` and `serve`: one for each setting, made from the one list of settings; and `-c`, `-p`."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from routebook.cli.service import print_json
from routebook.cli.tables import print_table
from routebook.errors import StoreError
from routebook.settings import LiveSettings, Loaded, Profile, catalogue, load
from routebook.settings.inert import reason
from routebook.settings.loading import default_of


def with_settings(profile: Profile) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a command its loaded settings, or prints them (`-p`) and ends."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def with_loaded(file: Path | None, print_: bool, json_: bool, **given: Any) -> int:
            flags = {name: given.pop(name) for name in (*catalogue.all_settings(), *catalogue.former_names())}
            loaded = load(flags, os.environ, file, profile)
            if print_:
                print_settings(loaded, json_)
                return 0
            return command(loaded, **given)

        options: Callable[..., int] = with_loaded
        for one in reversed(catalogue.all_settings().values()):
            options = _flag(one, profile)(options)
        for former in catalogue.former_names():
            # Refused with its new name; click would suggest whatever looks alike.
            options = click.option("--" + former.replace("_", "-"), former, hidden=True)(options)
        options = click.option("--json", "json_", is_flag=True, help="With -p: print JSON.")(options)
        options = click.option(
            "-p",
            "print_",
            is_flag=True,
            help="Print the effective settings and their origins, secrets masked, and exit.",
        )(options)
        return click.option(
            "-c",
            "file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Settings file: TOML, or RocketMQ's namesrv.conf / .properties.",
        )(options)

    return decorate


def _flag(one: catalogue.Setting, profile: Profile) -> Callable[[Callable[..., int]], Callable[..., int]]:
    # Texts, not click's types: range and message have their one home in the settings.
    value = default_of(one, profile)
    default = "" if value in ("", None) else f"  [{one.text(value)}]"
    return click.option(one.flag, one.name, metavar="VALUE", default=None, help=f"{one.about.why}{default}")


def print_settings(loaded: Loaded, json_: bool) -> None:
    live = LiveSettings(loaded)
    _apply_run_time_settings(live)
    rows = live.describe(masked=True)
    if json_:
        print_json(
            {
                "settings": [{"key": key, "value": value, "origin": origin} for key, value, origin in rows],
                "kept_properties": dict(loaded.kept_properties),
            }
        )
        return
    print_table(("setting", "value", "origin"), rows)
    if loaded.kept_properties:
        click.echo("\nKept, without effect here:")
        kept = [(key, value, reason(key)) for key, value in sorted(loaded.kept_properties.items())]
        print_table(("property", "value", "because"), kept)


def _apply_run_time_settings(live: LiveSettings) -> None:
    """Part of what is effective; but `-p` must also work where there is no store yet."""
    if not live.current.redis_url:
        return
    from routebook.runtime.diagnosis import read_run_time_settings  # noqa: PLC0415 only here needed

    try:
        live.apply(read_run_time_settings(live.loaded))
    except StoreError as error:
        click.echo(f"Without what was changed at run time: {error}", err=True)
