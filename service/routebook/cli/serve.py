"""`routebook up|serve`, their flags (one for each setting, `-c`, `-p`), and the hidden command of worker processes."""

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from routebook.cli.command import HELP_ALL, SectionOption, command
from routebook.cli.output import print_table
from routebook.cli.service_client import print_json
from routebook.errors import StoreError
from routebook.settings import LiveSettings, Loaded, Profile, catalogue, load
from routebook.settings.files import reason
from routebook.settings.limits import LimitSettings
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
        sections = setting_sections()
        for one in reversed(catalogue.all_settings().values()):
            options = _flag(one, profile, sections[one.name])(options)
        for former in catalogue.former_names():
            # Refused with its present name; click would suggest a similar one.
            options = click.option("--" + former.replace("_", "-"), former, hidden=True)(options)
        options = click.option("--json", "json_", is_flag=True, help="With -p: print JSON.")(options)
        options = click.option(
            "--help-all",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_whole_help,
            help="Show the flags of all settings and exit.",
        )(options)
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


_FIRST_OF_SECTION: Final = {
    "remoting_port": "Ports and process",
    "redis_url": "Store",
    "history_min_entries": "History",
    "broker_timeout_ms": "Expiry and lost connections",
    "support_acting_master": "Answers to RocketMQ peers",
    "serialize_type": "Remoting port",
    "tls_mode": "TLS",
    "http_host_names": "HTTP",
}
"""First setting of each section in `settings/fields.py` -> its heading. Limits come after them."""

_OFTEN_SET: Final = frozenset(
    {"redis_url", "namespace", "workers", "bind_address", "remoting_port", "http_port", "admin_port", "admin_host"}
    | {"advertised_addresses", "admin_token", "remoting_admin", "proxy_from", "http_host_names", "reports_dir"}
    | {"broker_timeout_ms", "hold_percent", "tls_mode", "tls_cert_path", "tls_key_path", "tls_trust_path", "log_level"}
)


def setting_sections() -> dict[str, str]:
    """Name of a setting -> heading of its section in the help."""
    found, section = {}, ""
    for name in catalogue.all_settings():
        section = "Limits" if name in LimitSettings.model_fields else _FIRST_OF_SECTION.get(name, section)
        found[name] = section
    return found


class _SettingOption(SectionOption):
    """A flag that `--help` shows when it is set often, with the first sentence about it. `--help-all` shows it always,
    with all sentences.
    """

    def __init__(self, *args: Any, why: str, shown_default: str, **kwargs: Any) -> None:
        super().__init__(*args, help=f"{why}{shown_default}", **kwargs)
        self._short_help = f"{re.split(r'(?<=[.])[ ]', why, maxsplit=1)[0]}{shown_default}"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or ctx.meta.get(HELP_ALL):
            return record
        return (record[0], self._short_help) if self.name in _OFTEN_SET else None


def _print_whole_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _flag(one: catalogue.Setting, profile: Profile, section: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    # Texts, not click's types: ranges and messages belong to the settings.
    value = default_of(one, profile)
    default = "" if value in ("", None) else f"  [{one.text(value)}]"
    return click.option(
        one.flag,
        one.name,
        cls=_SettingOption,
        section=section,
        metavar="VALUE",
        default=None,
        why=one.about.why,
        shown_default=default,
    )


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


@command("serve")
@with_settings("serve")
def serve_command(loaded: Loaded) -> int:
    """Run workers on the store given with --redis-url.

    Every setting has a flag, a variable and a key in the settings file. The most used flags follow; --help-all shows
    all of them.

    \b
    routebook serve --redis-url redis://127.0.0.1:6379 --workers 2
    routebook serve -c routebook.toml -p
    """
    from routebook.runtime.start import run_serve  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_serve(loaded)


@command("up")
@click.option("--end-with-parent", is_flag=True, help="Stop when the parent process ends.")
@with_settings("up")
def up_command(loaded: Loaded, end_with_parent: bool) -> int:
    """Run an embedded store (unless one is given) and one worker on loopback. Ctrl-C stops everything.

    \b
    routebook up
    routebook up --remoting-port 0 --http-port 0 --admin-port 0
    """
    from routebook.runtime.start import run_up  # noqa: PLC0415 the service's modules take long to import; -p needs none

    return run_up(loaded, end_with_parent=end_with_parent)


@command("worker-process", hidden=True)
@click.argument("parent", type=int)
def worker_process_command(parent: int) -> int:
    """One worker of `serve --workers N`."""
    from routebook.runtime.handover import die_with_parent  # noqa: PLC0415 first of all, before the slow imports

    die_with_parent(parent)
    from routebook.runtime.worker import run_worker_process  # noqa: PLC0415

    return run_worker_process(parent)
