"""`routebook topics`"""

import click

from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_table


@click.command("topics")
@click.option("--cluster", help="Only topics with queues on a broker of this cluster.")
@as_json
@asks_service
def command(service: Service, cluster: str | None, json_: bool) -> None:
    """All topics, with their brokers and queues."""
    topics = list(service.pages("/v1/topics", "topics", cluster=cluster))
    if json_:
        print_json(topics)
        return
    rows = [
        (
            one["topic"],
            list(one["queues"]),
            sum(queues["read_queues"] for queues in one["queues"].values()),
            sum(queues["write_queues"] for queues in one["queues"].values()),
        )
        for one in topics
    ]
    print_table(("topic", "brokers", "read queues", "write queues"), rows)
