"""`routebook status|expiry|digest|settings`: the state of a running service, and its settings."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from routebook.cli.output import print_fields, print_table
from routebook.cli.service_client import Service, as_json, path_part, print_json, with_service
from routebook.runtime import exits
from routebook.settings import catalogue

_LEAST_TIMESTAMP_MS = 10**12
"""Larger numbers of milliseconds are timestamps since 1970 (2001 and later), not durations."""


@click.command("status")
@as_json
@with_service
def status_command(service: Service, json_: bool) -> None:
    """Show version of the table, contact with the store, leader, workers, digest."""
    status = service.get("/v1/status")
    if json_:
        print_json(status)
    else:
        print_fields([("service", service.url), *flat_fields(status)])


@click.group("expiry")
def expiry_command() -> None:
    """Held removals: show them, or release them."""


@expiry_command.command("status")
@as_json
@with_service
def expiry_status(service: Service, json_: bool) -> None:
    """Show whether removals are held because too many brokers would be removed at once."""
    _print_state(service.get("/v1/expiry"), json_)


@expiry_command.command("release")
@as_json
@with_service
def release_expiry(service: Service, json_: bool) -> None:
    """Release held removals, after checking that the brokers really are dead."""
    _print_state(service.request("POST", "/v1/expiry/release"), json_)


def _print_state(state: dict[str, Any], json_: bool) -> None:
    if json_:
        print_json(state)
    else:
        print_fields(flat_fields(state))


def flat_fields(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Nested names joined by blanks: `leader token`. Timestamps become readable."""
    for name, inner in value.items():
        shown = f"{before} {name}".strip().replace("_", " ")
        if isinstance(inner, dict):
            yield from flat_fields(inner, shown)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            for number, item in enumerate(inner, 1):
                yield from flat_fields(item, f"{shown} {number}")
        elif name.endswith("_ms") and isinstance(inner, int) and inner > _LEAST_TIMESTAMP_MS:
            yield shown.removesuffix(" ms"), datetime.fromtimestamp(inner / 1000, UTC).isoformat(" ", "milliseconds")
        else:
            yield shown, inner


@click.command("digest")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@as_json
@with_service
def digest_command(service: Service, urls: tuple[str, ...], json_: bool) -> int:
    """Show the digest of the route table. With several URLs, of each; exit code 1 when they differ."""
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


@click.group("settings")
def settings_command() -> None:
    """Effective settings of a running service, and changes at run time."""


@settings_command.command("list")
@as_json
@with_service
def list_settings(service: Service, json_: bool) -> None:
    """List every setting, its value and its origin; secrets are masked."""
    settings = service.get("/v1/settings")["settings"]
    if json_:
        print_json(settings)
        return
    rows = [(one["key"], one["value"], one["origin"], _can_change_at_run_time(one["key"])) for one in settings]
    print_table(("setting", "value", "origin", "at run time"), rows)


@settings_command.command("set")
@click.argument("key")
@click.argument("value")
@as_json
@with_service
def set_setting(service: Service, key: str, value: str, json_: bool) -> None:
    """Change one setting on all workers. The change is kept in the store and survives restarts."""
    result = service.request("PUT", f"/v1/settings/{path_part(key)}", body={"value": value})
    if json_:
        print_json(result)
        return
    click.echo(f"{key} is {value} on all workers within a second (version {result['version']}).")
    _warn_when_overridden(service, key)


def _can_change_at_run_time(key: str) -> bool:
    one = catalogue.all_settings().get(key)
    return one is not None and one.about.at_run_time


def _warn_when_overridden(service: Service, key: str) -> None:
    """A flag or variable of that worker takes precedence over the change."""
    for one in service.get("/v1/settings")["settings"]:
        if one["key"] == key and one["origin"] in ("flag", "variable"):
            click.echo(f"On this worker, a {one['origin']} takes precedence: the value is {one['value']}.", err=True)
