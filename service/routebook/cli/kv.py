"""`routebook kv get|put|delete|list|namespaces`"""

import sys

import click

from routebook.cli.command import command_group, complete
from routebook.cli.confirming import Confirmation, destructive
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.output import printable
from routebook.cli.service_client import Service, path_part, with_service


@command_group("kv")
def kv_command() -> None:
    """Key-values by namespace, the configuration of ordered topics among them.

    \b
    routebook kv namespaces
    routebook kv list ORDER_TOPIC_CONFIG
    """


@kv_command.command("get")
@click.argument("namespace", shell_complete=complete("kv-namespaces"))
@click.argument("key", shell_complete=complete("kv-keys"))
@with_output
@with_service
def get(service: Service, namespace: str, key: str, *, form: Form) -> None:
    """Print one value.

    \b
    routebook kv get ORDER_TOPIC_CONFIG orders
    routebook kv get ORDER_TOPIC_CONFIG orders -o json
    """
    found = service.get(_path(namespace, key))
    if form.is_table:
        # A program gets the value as it is; a terminal must not be controlled by it.
        click.echo(printable(found["value"]) if sys.stdout.isatty() else found["value"])
    else:
        form.print_data(found)


@kv_command.command("put")
@click.argument("namespace", shell_complete=complete("kv-namespaces"))
@click.argument("key", shell_complete=complete("kv-keys"))
@click.argument("value")
@with_output
@with_service
def put(service: Service, namespace: str, key: str, value: str, *, form: Form) -> None:
    """Write one value.

    \b
    routebook kv put ORDER_TOPIC_CONFIG orders broker-a:8
    routebook kv put my-namespace my-key my-value --json
    """
    result = service.request("PUT", _path(namespace, key), body={"value": value})
    _print_result(result, f"Wrote {namespace}/{key}", form)


@kv_command.command("delete")
@click.argument("namespace", shell_complete=complete("kv-namespaces"))
@click.argument("key", shell_complete=complete("kv-keys"))
@destructive
@with_output
@with_service
def delete(service: Service, namespace: str, key: str, *, form: Form, confirmation: Confirmation) -> None:
    """Delete one value.

    \b
    routebook kv delete ORDER_TOPIC_CONFIG orders --dry-run
    routebook kv delete ORDER_TOPIC_CONFIG orders --yes
    """
    result = confirmation.send(service, "DELETE", _path(namespace, key))
    if result is not None:
        _print_result(result, f"Deleted {namespace}/{key}", form)


@kv_command.command("list")
@click.argument("namespace", shell_complete=complete("kv-namespaces"))
@with_names
@with_service
def list_(service: Service, namespace: str, *, form: Form) -> None:
    """List all key-values of a namespace.

    \b
    routebook kv list ORDER_TOPIC_CONFIG
    routebook kv list ORDER_TOPIC_CONFIG -o name
    """
    table: dict[str, str] = {}
    cursor = None
    while True:
        page = service.get(f"/v1/kv/{path_part(namespace)}", cursor=cursor, limit=1000)
        table |= page["table"]
        cursor = page.get("next_cursor")
        if not cursor:
            break
    if form.is_table:
        form.print_table(("key", "value"), sorted(table.items()))
    else:
        form.print_data(table, sorted(table))


@kv_command.command("namespaces")
@with_names
@with_service
def list_namespaces(service: Service, *, form: Form) -> None:
    """List the namespaces and the numbers of their keys.

    \b
    routebook kv namespaces
    routebook kv namespaces -o name
    """
    found = list(service.pages("/v1/kv", "namespaces"))
    if form.is_table:
        form.print_table(("namespace", "keys"), [(one["namespace"], one["keys"]) for one in found])
    else:
        form.print_data(found, [one["namespace"] for one in found])


def _path(namespace: str, key: str) -> str:
    return f"/v1/kv/{path_part(namespace)}/{path_part(key)}"


def _print_result(result: dict[str, object], sentence: str, form: Form) -> None:
    if form.is_table:
        click.echo(f"{sentence} (version {result['version']}).")
    else:
        form.print_data(result)
