"""`routebook delete-topic TOPIC`"""

import click

from routebook.cli.service import Service, as_json, asks_service, part, print_json
from routebook.runtime.exits import AnswerIsNoError


@click.command("delete-topic")
@click.argument("topic")
@click.option("--cluster", help="Only from the brokers of this cluster.")
@as_json
@asks_service
def command(service: Service, topic: str, cluster: str | None, json_: bool) -> None:
    """Delete a topic from the route table. It comes back if a broker still registers it."""
    done = service.ask("DELETE", f"/v1/topics/{part(topic)}", params={"cluster": cluster})
    if json_:
        print_json(done)
    if not done["count"]:
        raise AnswerIsNoError(f"No broker has a topic {topic!r}.", advice="`routebook topics` lists those there are.")
    if not json_:
        click.echo(f"{topic} is deleted from {done['count']} brokers (version {done['version']}).")
