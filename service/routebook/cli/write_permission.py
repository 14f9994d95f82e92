"""`routebook write-permission BROKER on|off`"""

import click

from routebook.cli.service import Service, as_json, asks_service, part, print_json
from routebook.runtime.exits import AnswerIsNoError


@click.command("write-permission")
@click.argument("broker")
@click.argument("permission", type=click.Choice(["on", "off"]))
@as_json
@asks_service
def command(service: Service, broker: str, permission: str, json_: bool) -> None:
    """Allow or forbid writing to all topics of a broker, for maintenance."""
    writable = permission == "on"
    done = service.ask("PUT", f"/v1/brokers/{part(broker)}/write-permission", body={"writable": writable})
    if json_:
        print_json(done)
    if not done["count"]:
        raise AnswerIsNoError(f"No topic has a broker {broker!r}.", advice="`routebook brokers` lists those there are.")
    if not json_:
        click.echo(f"Writing to {broker} is {permission}: {done['count']} topics touched (version {done['version']}).")
