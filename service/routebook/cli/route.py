"""`routebook route TOPIC`"""

import click

from routebook.cli.service import Service, as_json, asks_service, part, print_json
from routebook.cli.tables import print_table
from routebook.model.topic import PERM_READ, PERM_WRITE


@click.command("route")
@click.argument("topic")
@as_json
@asks_service
def command(service: Service, topic: str, json_: bool) -> None:
    """Where a topic lives: its brokers, their addresses and queues."""
    route = service.get(f"/v1/routes/{part(topic)}")
    if json_:
        print_json(route)
        return
    queues = {one["brokerName"]: one for one in route.get("queueDatas", [])}
    rows = []
    for broker in route.get("brokerDatas", []):
        one = queues.get(broker["brokerName"], {})
        for broker_id, address in sorted(broker["brokerAddrs"].items(), key=lambda item: int(item[0])):
            rows.append(
                (
                    broker["cluster"],
                    broker["brokerName"],
                    "master" if int(broker_id) == 0 else f"slave {broker_id}",
                    address,
                    one.get("readQueueNums"),
                    one.get("writeQueueNums"),
                    _letters(one.get("perm", 0)),
                )
            )
    print_table(("cluster", "broker", "role", "address", "read", "write", "perm"), rows)


def _letters(perm: int) -> str:
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")
