"""`routebook status`"""

import click

from routebook.cli.expiry import flat
from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_fields


@click.command("status")
@as_json
@asks_service
def command(service: Service, json_: bool) -> None:
    """Version of the table, contact with the store, leader, workers, digest."""
    status = service.get("/v1/status")
    if json_:
        print_json(status)
    else:
        print_fields([("service", service.url), *flat(status)])
