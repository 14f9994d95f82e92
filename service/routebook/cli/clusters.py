"""`routebook clusters`"""

import click

from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_table


@click.command("clusters")
@as_json
@asks_service
def command(service: Service, json_: bool) -> None:
    """All clusters and their brokers."""
    clusters = list(service.pages("/v1/clusters", "clusters"))
    if json_:
        print_json(clusters)
        return
    print_table(("cluster", "brokers"), [(one["name"], one["brokers"]) for one in clusters])
