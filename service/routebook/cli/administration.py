"""Changes that operators make: `routebook delete-topic|write-permission|remove-broker|register-topic|readers|kv`, and
the `--dry-run` and `--yes` of every command that deletes or overwrites.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click

from routebook.cli.command import command, command_group, complete
from routebook.cli.forms import Form, chosen_form, with_names, with_output
from routebook.cli.output import counted, print_table, printable
from routebook.cli.service_client import Service, path_part, with_service
from routebook.model.broker import PERM_READ, PERM_WRITE
from routebook.runtime.exits import AnswerIsNoError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Confirmation:
    is_dry_run: bool
    is_given: bool
    """Whether --yes is given."""
    form: Form

    def send(
        self,
        service: Service,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: object = None,
        nothing: Callable[[], AnswerIsNoError] | None = None,
    ) -> dict[str, Any] | None:
        """Returns the answer of the request, or None after a dry run, which has been printed then. `nothing` makes the
        error for a request that changes nothing because what it names does not exist.

        On a terminal, people see what would change and are asked. A script is not asked: it cannot answer.
        """
        dry_params = (params or {}) | {"dry_run": "true"}
        if self.is_dry_run:
            plan = service.request(method, path, params=dry_params, body=body)
            if not self.form.is_table:
                self.form.print_data(plan)
            elif plan["count"]:
                _print_plan(plan, err=False)
                click.echo("Nothing was changed.", err=True)
            if not plan["count"]:
                if nothing:
                    raise nothing()
                click.echo("Nothing would change.", err=True)
            return None
        if not self.is_given and sys.stdin.isatty() and sys.stderr.isatty():
            plan = service.request(method, path, params=dry_params, body=body)
            if plan["count"]:
                _print_plan(plan, err=True)
                if not click.confirm(f"Change this at {service.url}?", err=True):
                    raise AnswerIsNoError("Nothing was changed.", advice="--yes answers the question beforehand.")
        answer: dict[str, Any] = service.request(method, path, params=params, body=body)
        if nothing and not answer["count"]:
            if not self.form.is_table:
                self.form.print_data(answer)
            raise nothing()
        return answer


def _print_plan(plan: dict[str, Any], *, err: bool) -> None:
    rows = [(one["what"], one["before"], one["after"]) for one in plan["changes"]]
    print_table(("would change", "from", "to"), rows, err=err)
    if plan["count"] > len(rows):
        click.echo(f"and {plan['count'] - len(rows)} more", err=err)


def destructive(command: Callable[..., R]) -> Callable[..., R]:
    """Adds --dry-run and --yes, and passes them as `confirmation`. Comes below the decorators for the form."""

    @click.option("--dry-run", is_flag=True, help="Only show what would change.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask, even on a terminal.")
    @wraps(command)
    def with_confirmation(*args: Any, dry_run: bool, yes: bool, **kwargs: Any) -> R:
        return command(*args, confirmation=Confirmation(dry_run, yes, chosen_form(names=False)), **kwargs)

    return with_confirmation


@command("delete-topic")
@click.argument("topic", shell_complete=complete("topics"))
@click.option("--cluster", shell_complete=complete("clusters"), help="Only from the brokers of this cluster.")
@destructive
@with_output
@with_service
def delete_topic_command(
    service: Service, topic: str, cluster: str | None, *, form: Form, confirmation: Confirmation
) -> None:
    """Delete a topic from the route table. It returns if a broker still registers it.

    \b
    routebook delete-topic orders --dry-run
    routebook delete-topic orders --cluster west --yes
    """

    def nothing() -> AnswerIsNoError:
        where = f" of the cluster {cluster}" if cluster else ""
        return AnswerIsNoError(f"No broker{where} has a topic {topic!r}.", advice=service.advice_about("topic", topic))

    path = f"/v1/topics/{path_part(topic)}"
    result = confirmation.send(service, "DELETE", path, params={"cluster": cluster}, nothing=nothing)
    if result is None:
        return
    if not form.is_table:
        form.print_data(result)
    else:
        click.echo(f"Deleted {topic} from {counted(result['count'], 'broker')} (version {result['version']}).")


@command("write-permission")
@click.argument("broker", shell_complete=complete("brokers"))
@click.argument("permission", type=click.Choice(["on", "off"]))
@destructive
@with_output
@with_service
def write_permission_command(
    service: Service, broker: str, permission: str, *, form: Form, confirmation: Confirmation
) -> None:
    """Allow or forbid writing to all topics of a broker, for maintenance.

    \b
    routebook write-permission broker-a off
    routebook write-permission broker-a on --yes
    """
    body = {"writable": permission == "on"}
    path = f"/v1/brokers/{path_part(broker)}/write-permission"
    result = confirmation.send(service, "PUT", path, body=body)
    if result is None:
        return
    if not form.is_table:
        form.print_data(result)
    if not result["count"]:
        advice = service.advice_about("broker", broker)
        raise AnswerIsNoError(f"No topic has queues on a broker {broker!r}.", advice=advice)
    if form.is_table:
        click.echo(
            f"Writing to {broker} is {permission}: {counted(result['count'], 'topic')} changed "
            f"(version {result['version']})."
        )


@command("remove-broker")
@click.argument("broker", shell_complete=complete("brokers"))
@click.option("--id", "broker_id", type=click.IntRange(0), help="Broker id; needed when the group has several brokers.")
@destructive
@with_output
@with_service
def remove_broker_command(
    service: Service, broker: str, broker_id: int | None, *, form: Form, confirmation: Confirmation
) -> None:
    """Remove a broker from the route table at once, without waiting for its timeout. It returns when it registers.

    \b
    routebook remove-broker broker-a --id 1 --dry-run
    routebook remove-broker broker-a --id 0 --yes
    """
    group = service.get(f"/v1/brokers/{path_part(broker)}")
    by_id = {one["id"]: one["address"] for one in group["members"]}
    if broker_id is None:
        if len(by_id) != 1:
            known = ", ".join(f"{number} ({address})" for number, address in sorted(by_id.items()))
            raise click.UsageError(f"{broker} has several brokers; choose one with --id: {known}.")
        (broker_id,) = by_id
    path = f"/v1/clusters/{path_part(group['cluster'])}/brokers/{path_part(broker)}/{broker_id}"
    result = confirmation.send(service, "DELETE", path)
    if result is None:
        return
    if form.is_table:
        click.echo(f"Removed {broker} id {broker_id}, {by_id.get(broker_id)} (version {result['version']}).")
    else:
        form.print_data(result)


_PERMISSIONS = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE}


@command("register-topic")
@click.argument("topic")
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    required=True,
    metavar="NAME",
    shell_complete=complete("brokers"),
    help="A broker that has the topic; may be repeated.",
)
@click.option("--read-queues", type=click.IntRange(0), default=8, show_default=True)
@click.option("--write-queues", type=click.IntRange(0), default=8, show_default=True)
@click.option("--perm", type=click.Choice(list(_PERMISSIONS)), default="rw", show_default=True)
@with_output
@with_service
def register_topic_command(
    service: Service,
    topic: str,
    *,
    brokers: tuple[str, ...],
    read_queues: int,
    write_queues: int,
    perm: str,
    form: Form,
) -> None:
    """Register queues of a topic on brokers that are registered already.

    It creates nothing on the brokers. The next changed registration of a broker overwrites it.

    \b
    routebook register-topic orders --broker broker-a
    routebook register-topic orders --broker broker-a --broker broker-b --write-queues 16 --perm r
    """
    queues = {"read_queues": read_queues, "write_queues": write_queues, "perm": _PERMISSIONS[perm]}
    body = {"queues": dict.fromkeys(brokers, queues)}
    result = service.request("PUT", f"/v1/topics/{path_part(topic)}", body=body)
    if form.is_table:
        click.echo(f"Registered {topic} on {counted(len(brokers), 'broker')} (version {result['version']}).")
    else:
        form.print_data(result)


@command_group("readers")
def readers_command() -> None:
    """Programs that read the history of changes, such as the pipeline.

    The store keeps changes until they have consumed them.

    \b
    routebook readers list
    routebook readers forget old-pipeline
    """


@readers_command.command("list")
@with_names
@with_service
def list_readers(service: Service, *, form: Form) -> None:
    """List all readers, and how far each one has read.

    \b
    routebook readers list
    routebook readers list -o name
    """
    readers: list[dict[str, Any]] = service.get("/v1/readers")["readers"]
    if not form.is_table:
        form.print_data(readers, [one["reader"] for one in readers])
        return
    newest = service.get("/v1/status")["version"]
    form.print_table(
        ("reader", "version", "changes behind", "last report"),
        [
            (
                one["reader"],
                one["version"],
                max(newest - one["version"], 0),
                datetime.fromtimestamp(one["seen_ms"] / 1000, UTC).isoformat(" ", "seconds"),
            )
            for one in readers
        ],
    )


@readers_command.command("forget")
@click.argument("name", shell_complete=complete("readers"))
@destructive
@with_output
@with_service
def forget_reader(service: Service, name: str, *, form: Form, confirmation: Confirmation) -> None:
    """Forget a reader that no longer exists, so that the store keeps no more changes for it.

    A reader that still runs appears again with its next report.

    \b
    routebook readers forget old-pipeline --dry-run
    routebook readers forget old-pipeline --yes
    """
    result = confirmation.send(service, "DELETE", f"/v1/readers/{path_part(name)}")
    if result is None:
        return
    if form.is_table:
        click.echo(f"Forgot the reader {name}.")
    else:
        form.print_data(result)


# -- key-values


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
