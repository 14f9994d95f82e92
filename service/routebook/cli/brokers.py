"""`routebook brokers`"""

import click

from routebook.cli.service import Service, as_json, asks_service, print_json
from routebook.cli.tables import print_table


@click.command("brokers")
@click.option("--cluster", help="Only brokers of this cluster.")
@as_json
@asks_service
def command(service: Service, cluster: str | None, json_: bool) -> None:
    """All brokers, one line a member of each group."""
    brokers = list(service.pages("/v1/brokers", "brokers", cluster=cluster))
    if json_:
        print_json(brokers)
        return
    rows = [
        (
            one["cluster"],
            one["name"],
            member["id"],
            member["address"],
            one["topics"],
            _seconds(member.get("timeout_ms")),
            one["zone"],
        )
        for one in brokers
        for member in one["members"]
    ]
    print_table(("cluster", "broker", "id", "address", "topics", "timeout s", "zone"), rows)


def _seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:g}"
