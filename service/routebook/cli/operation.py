"""`routebook status|expiry|digest|settings`: the state of a running service, and its settings."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from routebook.cli.administration import Confirmation, destructive
from routebook.cli.command import command, command_group, complete
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.output import print_fields, print_table, printable
from routebook.cli.service_client import Service, as_json, path_part, print_json, with_service
from routebook.runtime import exits
from routebook.runtime.exits import AnswerIsNoError
from routebook.settings import catalogue

_LEAST_TIMESTAMP_MS = 10**12
"""Larger numbers of milliseconds are timestamps since 1970 (2001 and later), not durations."""


@command_group("expiry")
def expiry_command() -> None:
    """Held removals: show them, or release them.

    \b
    routebook expiry status
    routebook expiry release --dry-run
    """


@expiry_command.command("status")
@with_output
@with_service
def expiry_status(service: Service, *, form: Form) -> None:
    """Show whether removals are held because too many brokers would be removed at once.

    \b
    routebook expiry status
    routebook expiry status -o jsonpath='{.brokers[*]}'
    """
    _print_state(service.get("/v1/expiry"), form)


@expiry_command.command("release")
@destructive
@with_output
@with_service
def release_expiry(service: Service, *, form: Form, confirmation: Confirmation) -> None:
    """Release held removals, after checking that the brokers really are dead.

    \b
    routebook expiry release --dry-run
    routebook expiry release --yes
    """
    state = confirmation.send(service, "POST", "/v1/expiry/release")
    if state is not None:
        _print_state(state, form)


def _print_state(state: dict[str, Any], form: Form) -> None:
    if form.is_table:
        print_fields(flat_fields(state))
    else:
        form.print_data(state)


def flat_fields(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Nested names joined by blanks: `leader token`. Timestamps become readable."""
    for name, inner in value.items():
        shown = f"{before} {name}".strip().replace("_", " ")
        if isinstance(inner, dict):
            yield from flat_fields(inner, shown)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            for number, item in enumerate(inner, 1):
                yield from flat_fields(item, f"{shown} {number}")
        elif inner is None:
            yield shown.removesuffix(" ms"), None
        elif name.endswith("_ms") and isinstance(inner, int) and inner > _LEAST_TIMESTAMP_MS:
            yield shown.removesuffix(" ms"), datetime.fromtimestamp(inner / 1000, UTC).isoformat(" ", "milliseconds")
        else:
            yield shown, inner


@command("digest")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@as_json
@with_service
def digest_command(service: Service, urls: tuple[str, ...], json_: bool) -> int:
    """Show the digest of the route table. With several URLs, of each; exit code 1 when they differ.

    \b
    routebook digest
    routebook digest http://rb-1:8080 http://rb-2:8080
    """
    rows = [_digest_of(Service(url, "")) for url in urls] if urls else [_digest_of(service)]
    if json_:
        print_json(rows if urls else rows[0])
    elif urls:
        print_table(("service", "history", "version", "digest"), [tuple(row.values()) for row in rows])
    else:
        click.echo(rows[0]["digest"])
    return exits.DONE if len({row["digest"] for row in rows}) == 1 else exits.ANSWER_IS_NO


def _digest_of(service: Service) -> dict[str, object]:
    with service:
        status = service.get("/v1/status")
    return {
        "service": service.url,
        "history": status["history"],
        "version": status["version"],
        "digest": status["digest"],
    }


@command_group("settings")
def settings_command() -> None:
    """Effective settings of a running service, and changes at run time.

    \b
    routebook settings list
    routebook settings set hold_percent 40
    """


@settings_command.command("list")
@with_names
@with_service
def list_settings(service: Service, *, form: Form) -> None:
    """List every setting, its value and its origin; secrets are masked.

    \b
    routebook settings list
    routebook settings list -o jsonpath="{[?(@.origin=='run time')].key}"
    """
    settings = service.get("/v1/settings")["settings"]
    if not form.is_table:
        form.print_data(settings, [one["key"] for one in settings])
        return
    rows = [(one["key"], one["value"], one["origin"], _can_change_at_run_time(one["key"])) for one in settings]
    form.print_table(("setting", "value", "origin", "at run time"), rows)


@settings_command.command("get")
@click.argument("key", shell_complete=complete("all-settings"))
@with_output
@with_service
def get_setting(service: Service, key: str, *, form: Form) -> None:
    """Print the value of one setting.

    \b
    routebook settings get hold_percent
    routebook settings get hold_percent -o json
    """
    for one in service.get("/v1/settings")["settings"]:
        if one["key"] == key:
            if form.is_table:
                click.echo(printable(one["value"]))
            else:
                form.print_data(one)
            return
    # Suggests the right name; a service of another release may have settings that this one does not know.
    catalogue.find(key)
    raise AnswerIsNoError(f"The service has no setting {key!r}.", advice="`routebook settings list` lists all of them.")


@settings_command.command("set")
@click.argument("key", shell_complete=complete("settings"))
@click.argument("value")
@destructive
@with_output
@with_service
def set_setting(service: Service, key: str, value: str, *, form: Form, confirmation: Confirmation) -> None:
    """Change one setting on all workers. The change is kept in the store and survives restarts.

    \b
    routebook settings set hold_percent 40 --dry-run
    routebook settings set broker_timeout_ms 60000 --yes
    """
    result = confirmation.send(service, "PUT", f"/v1/settings/{path_part(key)}", body={"value": value})
    if result is None:
        return
    if not form.is_table:
        form.print_data(result)
        return
    click.echo(f"{key} is {value} on all workers within a second (version {result['version']}).")
    _warn_when_overridden(service, key)


@settings_command.command("reset")
@click.argument("key", shell_complete=complete("settings"))
@destructive
@with_output
@with_service
def reset_setting(service: Service, key: str, *, form: Form, confirmation: Confirmation) -> None:
    """Undo a change at run time: on all workers, the value of the file or the default is in force again.

    \b
    routebook settings reset hold_percent --dry-run
    routebook settings reset hold_percent --yes
    """
    result = confirmation.send(service, "DELETE", f"/v1/settings/{path_part(key)}")
    if result is None:
        return
    if not form.is_table:
        form.print_data(result)
        return
    now = {one["key"]: one for one in service.get("/v1/settings", min_version=result["version"])["settings"]}
    shown = f": {now[key]['value']} ({now[key]['origin']})" if key in now else ""
    click.echo(f"{key} is reset on all workers within a second{shown} (version {result['version']}).")


def _can_change_at_run_time(key: str) -> bool:
    one = catalogue.all_settings().get(key)
    return one is not None and one.about.at_run_time


def _warn_when_overridden(service: Service, key: str) -> None:
    """A flag or variable of that worker takes precedence over the change."""
    for one in service.get("/v1/settings")["settings"]:
        if one["key"] == key and one["origin"] in ("flag", "variable"):
            click.echo(f"On this worker, a {one['origin']} takes precedence: the value is {one['value']}.", err=True)
