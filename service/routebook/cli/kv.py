"""`routebook kv get|put|delete|list`"""

import click

from routebook.cli.service import Service, as_json, asks_service, part, print_json
from routebook.cli.tables import print_table


@click.group("kv")
def command() -> None:
    """Name-space configuration: key-values, ordered topics among them."""


@command.command("get")
@click.argument("namespace")
@click.argument("key")
@as_json
@asks_service
def get(service: Service, namespace: str, key: str, json_: bool) -> None:
    """Print one value."""
    found = service.get(_path(namespace, key))
    if json_:
        print_json(found)
    else:
        click.echo(found["value"])


@command.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@as_json
@asks_service
def put(service: Service, namespace: str, key: str, value: str, json_: bool) -> None:
    """Write one value."""
    done = service.ask("PUT", _path(namespace, key), body={"value": value})
    _print_done(done, f"{namespace}/{key} is written", json_)


@command.command("delete")
@click.argument("namespace")
@click.argument("key")
@as_json
@asks_service
def delete(service: Service, namespace: str, key: str, json_: bool) -> None:
    """Delete one value."""
    done = service.ask("DELETE", _path(namespace, key))
    _print_done(done, f"{namespace}/{key} is deleted", json_)


@command.command("list")
@click.argument("namespace")
@as_json
@asks_service
def list_(service: Service, namespace: str, json_: bool) -> None:
    """All key-values of a namespace."""
    table: dict[str, str] = {}
    cursor = None
    while True:
        page = service.get(f"/v1/kv/{part(namespace)}", cursor=cursor, limit=1000)
        table |= page["table"]
        cursor = page.get("next_cursor")
        if not cursor:
            break
    if json_:
        print_json(table)
    else:
        print_table(("key", "value"), sorted(table.items()))


def _path(namespace: str, key: str) -> str:
    return f"/v1/kv/{part(namespace)}/{part(key)}"


def _print_done(done: dict[str, object], sentence: str, json_: bool) -> None:
    if json_:
        print_json(done)
    else:
        click.echo(f"{sentence} (version {done['version']}).")
