"""`routebook kv get|put|delete|list`"""

import sys

import click

from routebook.cli.output import print_table, printable
from routebook.cli.service_client import Service, as_json, path_part, print_json, with_service


@click.group("kv")
def kv_command() -> None:
    """Key-values by namespace, the configuration of ordered topics among them."""


@kv_command.command("get")
@click.argument("namespace")
@click.argument("key")
@as_json
@with_service
def get(service: Service, namespace: str, key: str, json_: bool) -> None:
    """Print one value."""
    found = service.get(_path(namespace, key))
    if json_:
        print_json(found)
    else:
        # A program gets the value as it is; a terminal must not be controlled by it.
        click.echo(printable(found["value"]) if sys.stdout.isatty() else found["value"])


@kv_command.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@as_json
@with_service
def put(service: Service, namespace: str, key: str, value: str, json_: bool) -> None:
    """Write one value."""
    result = service.request("PUT", _path(namespace, key), body={"value": value})
    _print_result(result, f"Wrote {namespace}/{key}", json_)


@kv_command.command("delete")
@click.argument("namespace")
@click.argument("key")
@as_json
@with_service
def delete(service: Service, namespace: str, key: str, json_: bool) -> None:
    """Delete one value."""
    result = service.request("DELETE", _path(namespace, key))
    _print_result(result, f"Deleted {namespace}/{key}", json_)


@kv_command.command("list")
@click.argument("namespace")
@as_json
@with_service
def list_(service: Service, namespace: str, json_: bool) -> None:
    """List all key-values of a namespace."""
    table: dict[str, str] = {}
    cursor = None
    while True:
        page = service.get(f"/v1/kv/{path_part(namespace)}", cursor=cursor, limit=1000)
        table |= page["table"]
        cursor = page.get("next_cursor")
        if not cursor:
            break
    if json_:
        print_json(table)
    else:
        print_table(("key", "value"), sorted(table.items()))


def _path(namespace: str, key: str) -> str:
    return f"/v1/kv/{path_part(namespace)}/{path_part(key)}"


def _print_result(result: dict[str, object], sentence: str, json_: bool) -> None:
    if json_:
        print_json(result)
    else:
        click.echo(f"{sentence} (version {result['version']}).")
