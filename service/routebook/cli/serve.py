"""`routebook up|serve`, their flags (one for each setting, `-c`, `-p`), and the hidden command of worker processes."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from routebook.cli.output import print_table
from routebook.cli.service_client import print_json
from routebook.errors import StoreError
from routebook.settings import LiveSettings, Loaded, Profile, catalogue, load
from routebook.settings.inert import reason
from routebook.settings.loading import default_of


def with_settings(profile: Profile) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Passes the loaded settings to a command, or prints them (`-p`) and exits."""

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
            # Refused with its present name; click would suggest a similar one.
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
    # Texts, not click's types: ranges and messages belong to the settings.
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
        click.echo("\nKept, without effect:")
        kept = [(key, value, reason(key)) for key, value in sorted(loaded.kept_properties.items())]
        print_table(("property", "value", "because"), kept)


def _apply_run_time_settings(live: LiveSettings) -> None:
    """Run-time settings are effective too, but `-p` must also work without a store."""
    if not live.current.redis_url:
        return
    from routebook.runtime.diagnosis import read_run_time_settings  # noqa: PLC0415 only here needed

    try:
        live.apply(read_run_time_settings(live.loaded))
    except StoreError as error:
        click.echo(f"The run-time settings are missing: {error}", err=True)


@click.command("serve")
@with_settings("serve")
def serve_command(loaded: Loaded) -> int:
    """Run workers on the store given with --redis-url."""
    from routebook.runtime.start import run_serve  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_serve(loaded)


@click.command("up")
@click.option("--end-with-parent", is_flag=True, help="Stop when the parent process ends.")
@with_settings("up")
def up_command(loaded: Loaded, end_with_parent: bool) -> int:
    """Run an embedded store (unless one is given) and one worker on loopback. Ctrl-C stops everything."""
    from routebook.runtime.start import run_up  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_up(loaded, end_with_parent=end_with_parent)


@click.command("worker-process", hidden=True)
@click.argument("parent", type=int)
def worker_process_command(parent: int) -> int:
    """One worker of `serve --workers N`."""
    from routebook.runtime.handover import die_with_parent  # noqa: PLC0415 first of all, before the slow imports

    die_with_parent(parent)
    from routebook.runtime.worker_process import run_worker_process  # noqa: PLC0415

    return run_worker_process(parent)
