"""`routebook delete-topic|write-permission|remove-broker|register-topic|readers`: changes that operators make."""

from datetime import UTC, datetime
from typing import Any

import click

from routebook.cli.command import command, command_group, complete
from routebook.cli.confirming import Confirmation, destructive
from routebook.cli.forms import Form, with_names, with_output
from routebook.cli.service_client import Service, path_part, with_service
from routebook.model.broker import PERM_READ, PERM_WRITE
from routebook.runtime.exits import AnswerIsNoError


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
    result = confirmation.send(service, "DELETE", f"/v1/topics/{path_part(topic)}", params={"cluster": cluster})
    if result is None:
        return
    if not form.is_table:
        form.print_data(result)
    if not result["count"]:
        raise AnswerIsNoError(f"No broker has a topic {topic!r}.", advice="`routebook topics` lists all topics.")
    if form.is_table:
        click.echo(f"Deleted {topic} from {result['count']} brokers (version {result['version']}).")


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
        raise AnswerIsNoError(
            f"No topic has queues on a broker {broker!r}.", advice="`routebook brokers` lists all brokers."
        )
    if form.is_table:
        click.echo(
            f"Writing to {broker} is {permission}: {result['count']} topics changed (version {result['version']})."
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
        click.echo(f"Registered {topic} on {len(brokers)} brokers (version {result['version']}).")
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
