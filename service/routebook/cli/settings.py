"""`routebook settings list|set`"""

import click

from routebook.cli.service import Service, as_json, asks_service, part, print_json
from routebook.cli.tables import print_table
from routebook.settings import catalogue


@click.group("settings")
def command() -> None:
    """Effective settings of a running service, and changes at run time."""


@command.command("list")
@as_json
@asks_service
def list_(service: Service, json_: bool) -> None:
    """Every setting, its value and where that comes from; secrets masked."""
    found = service.get("/v1/settings")["settings"]
    if json_:
        print_json(found)
        return
    rows = [(one["key"], one["value"], one["origin"], _changeable(one["key"])) for one in found]
    print_table(("setting", "value", "origin", "at run time"), rows)


@command.command("set")
@click.argument("key")
@click.argument("value")
@as_json
@asks_service
def set_(service: Service, key: str, value: str, json_: bool) -> None:
    """Change one setting on all workers; it lives in the store and survives restarts."""
    done = service.ask("PUT", f"/v1/settings/{part(key)}", body={"value": value})
    if json_:
        print_json(done)
        return
    click.echo(f"{key} is {value} on all workers within a second (version {done['version']}).")
    _warn_when_overruled(service, key)


def _changeable(key: str) -> bool:
    one = catalogue.all_settings().get(key)
    return one is not None and one.about.at_run_time


def _warn_when_overruled(service: Service, key: str) -> None:
    """A flag or variable of that worker stays stronger: better said at once than searched for."""
    for one in service.get("/v1/settings")["settings"]:
        if one["key"] == key and one["origin"] in ("flag", "variable"):
            click.echo(f"On this worker the {one['origin']} stays stronger: it is {one['value']}.", err=True)
